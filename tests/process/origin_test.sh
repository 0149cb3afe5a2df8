#!/bin/sh
# suite: limit 60 s
# dlopen through hakmem is still the caller's own: its RUNPATH and its $ORIGIN count, not those of hakmem. That
# needs a jump where a compiler may make a call, so the machine code is looked at too.
# shellcheck source=tests/process/lib.sh
. "$TEST_ROOT/tests/process/lib.sh" || exit 1

mkdir -p "$dir/bin/near" "$dir/lib/near" || exit 1
cat > "$dir/near.c" <<'C'
const char *which(void) { return PLACE; }
C
cat > "$dir/open.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
const char *open_near(void);
const char *open_near(void) {
    void *library = dlopen("libnear.so", RTLD_NOW | RTLD_DEEPBIND);
    const char *(*which)(void) = library ? (const char *(*)(void))dlsym(library, "which") : 0;
    return which ? which() : dlerror();
}
C
cat > "$dir/main.c" <<'C'
#include <stdio.h>
#include <string.h>
const char *open_near(void);
int main(int argc, char **argv) {
    const char *place = open_near();
    printf("%s\n", place);
    return argc != 2 || strcmp(place, argv[1]) != 0;
}
C
near() { # FOLDER: a libnear.so that knows where it lies
    $CC -shared -fPIC -DPLACE="\"$1\"" -o "$dir/$1/near/libnear.so" "$dir/near.c"
}
# shellcheck disable=SC2016 # $ORIGIN is the loader's
near bin && near lib &&
    $CC -shared -fPIC -Wl,-rpath,'$ORIGIN/near' -o "$dir/lib/libopen.so" "$dir/open.c" -ldl &&
    $CC -Wl,-rpath,'$ORIGIN/near' -o "$dir/bin/alone" "$dir/main.c" "$dir/open.c" -ldl &&
    $CC -Wl,-rpath,"$dir/lib" -o "$dir/bin/with_library" "$dir/main.c" -L"$dir/lib" -lopen || exit 1

LD_PRELOAD=$TEST_SO "$dir/bin/alone" bin
check "a program's own RUNPATH counts" $?
LD_PRELOAD=$TEST_SO "$dir/bin/with_library" lib
check "a library's own RUNPATH counts" $?
HAKMEM_DEEPBIND=keep LD_PRELOAD=$TEST_SO "$dir/bin/with_library" lib
check "a library's own RUNPATH counts with HAKMEM_DEEPBIND=keep" $?

objdump -d --no-show-raw-insn "$TEST_SO" | sed -n '/<dlopen>:$/,/^$/p' > "$dir/code"
case $(uname -m) in
x86_64) grep -Eq '[[:space:]](notrack )?jmp +\*' "$dir/code" ;;
aarch64) grep -Eq '[[:space:]]br[[:space:]]+x' "$dir/code" ;;
esac
check "dlopen ends in a jump" $?

close_suite
