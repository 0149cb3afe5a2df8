#!/bin/sh
# suite: limit 60 s
# hakmem's constructor comes before the C library's. Whatever it does there, the program's name, arguments and environment
# are known to the C library, which hands them to the constructors of libraries that are opened later.
# shellcheck source=tests/process/lib.sh
. "$TEST_ROOT/tests/process/lib.sh" || exit 1

cat > "$dir/opened.c" <<'C'
#include <string.h>
int knows_arguments;
__attribute__((constructor)) static void begin(int argc, char **argv, char **environment) {
    knows_arguments = argc == 2 && argv != NULL && strcmp(argv[1], "argument") == 0 && environment != NULL;
}
C
cat > "$dir/main.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
    void *opened = dlopen(OPENED, RTLD_NOW);
    int *knows_arguments = opened == NULL ? NULL : dlsym(opened, "knows_arguments");
    if (argc != 2 || strcmp(program_invocation_name, argv[0]) != 0 || strcmp(program_invocation_short_name, "main") != 0) {
        return 3;
    }
    if (getenv("TEST_ROOT") == NULL) {
        return 4;
    }
    return knows_arguments != NULL && *knows_arguments ? 0 : 5;
}
C
$CC -shared -fPIC -o "$dir/opened.so" "$dir/opened.c" &&
    $CC -DOPENED="\"$dir/opened.so\"" -o "$dir/main" "$dir/main.c" -ldl || exit 1

"$dir/main" argument
check "the program itself, on libc" $?
for option in HAKMEM_CHECK=0 HAKMEM_CHECK=1 HAKMEM_CHECK_FRAMES=0 HAKMEM_GUARD_SAMPLE=10 HAKMEM_RANDOMIZE=1 HAKMEM_BACKGROUND=1; do
    env "$option" LD_PRELOAD="$TEST_SO" "$dir/main" argument
    check "preloaded, $option" $?
done

close_suite
