#!/bin/bash
# suite: limit 120 s
# The Makefile rebuilds what an edit or a change of options makes stale, and nothing else. Tried on a tree of four
# small sources, because its rules know nothing of what the sources do.
. "$(dirname "$0")/lib.sh" || exit 1

tree=$TMPDIR/tree
mkdir -p "$tree/core/base" "$tree/core/os" "$tree/core/api" "$tree/include"
cp "$TEST_ROOT/Makefile" "$tree/"
cp "$TEST_ROOT/include/hakmem.h" "$tree/include/"
cp "$TEST_ROOT/core/layout.ld" "$tree/core/"
cd "$tree" || exit 1

echo 'int hak_low(void);' >core/base/low.h
printf '#include "base/low.h"\nint hak_low(void) {\n    return 1;\n}\n' >core/base/low.c
printf 'int hak_mid(void);\nint hak_mid(void) {\n    return 2;\n}\n' >core/os/mid.c
cat >core/api/top.c <<'END'
#include "base/low.h"
#include "hakmem.h"
__attribute__((visibility("default"))) int hak_version(void) {
    return hak_low();
}
END
cat >core/api/dlopen.c <<'END'
__attribute__((visibility("default"))) void *dlopen(const char *, int);
void *dlopen(const char *name, int flags) {
    return (void)name, (void)flags, (void *)0;
}
END

# built: runs make with the arguments, keeps its lines in $TMPDIR/built. Clocks of file systems tick slowly.
built() {
    sleep 0.02
    make "$@" >"$TMPDIR/built" 2>&1
}
# compiles PATTERN COUNT: the last make compiled so many files whose object matches.
compiles() {
    [ "$(grep -cE "^  CC +$1" "$TMPDIR/built")" = "$2" ] || { cat "$TMPDIR/built"; return 1; }
}
quiet() {
    [ ! -s "$TMPDIR/built" ] || { cat "$TMPDIR/built"; return 1; }
}
exports() {
    nm -D --defined-only "$1" | grep -qw "$2"
}
defines() {
    nm "$1" 2>/dev/null | grep -qw "$2"
}

expect 'a first make' built
expect 'leaves both libraries' test -s libhakmem.so -a -s libhakmem.a
expect 'the shared one has dlopen' exports libhakmem.so dlopen
expect_not 'the archive has none' defines libhakmem.a dlopen
built
expect 'a second make does nothing' quiet

touch core/base/low.h
built
expect 'a header edit compiles its readers' compiles 'build/release/(base/low|api/top).o' 2
expect 'and nobody else' compiles 'build/release/' 2

built NATIVE=1
expect 'NATIVE=1 compiles everything again' compiles 'build/release/' 4
built NATIVE=1
expect 'but once' quiet
built
expect 'and back' compiles 'build/release/' 4
built HAKMEM_DEBUG_COUNTERS=1
expect 'HAKMEM_DEBUG_COUNTERS=1 compiles everything again' compiles 'build/release/' 4
built CFLAGS=-DX=1
expect 'CFLAGS does so too' compiles 'build/release/' 4
built
built LDFLAGS=-Wl,-O1
expect 'LDFLAGS compile nothing' compiles 'build/' 0
expect 'but link' grep -q 'LD  *libhakmem.so' "$TMPDIR/built"
built

built debug
expect 'make debug compiles its own objects' compiles 'build/debug/' 4
expect 'and no others' compiles 'build/(release|archive)/' 0
expect 'into ./libhakmem-debug.so' exports libhakmem-debug.so dlopen

mkdir core/slab
printf '__attribute__((visibility("default"))) int hak_new(void);\nint hak_new(void) {\n    return 3;\n}\n' \
    >core/slab/new.c
built
expect 'a new source is compiled alone' compiles 'build/release/' 1
expect 'and linked' exports libhakmem.so hak_new
rm core/slab/new.c
built
expect_not 'a removed source leaves the library' exports libhakmem.so hak_new
expect_not 'and the archive' defines libhakmem.a hak_new

sed -i '/low.h/d; s/int hak_low/int hak_low(void);\nint hak_low/' core/base/low.c
sed -i 's/#include "base\/low.h"/int hak_low(void);/' core/api/top.c
rm core/base/low.h
expect 'a removed header stops nobody' built

cp libhakmem.so "$TMPDIR/before.so"
echo 'syntax error' >>core/os/mid.c
expect_not 'a compile error fails' built
expect 'and leaves the last library' cmp libhakmem.so "$TMPDIR/before.so"
sed -i '$d' core/os/mid.c

built
echo '/* edited */' >>core/layout.ld
built
expect 'an edit of the layout links anew' grep -q 'LD *libhakmem.so' "$TMPDIR/built"

echo 'static int unused;' >core/os/odd.c
expect_not 'a warning is an error if that is asked for' built WERROR=-Werror
expect 'and where tests run' grep -q -- '-Werror .*core/os/odd.c' <(make -n check)
expect 'but keeps nobody from building' built
expect 'who is told of it' grep -q 'warning:.*unused' "$TMPDIR/built"
rm core/os/odd.c

expect 'make clean' built clean
expect 'removes all that was built' test "$(find . -type f | sort | tr '\n' ' ')" = \
    './Makefile ./core/api/dlopen.c ./core/api/top.c ./core/base/low.c ./core/layout.ld ./core/os/mid.c ./include/hakmem.h '
expect 'a parallel make from nothing' built -j8 all debug tsan ubsan
built -j1 all debug tsan ubsan
expect 'leaves nothing to do for a serial one' quiet

mkdir "$TMPDIR/bin"
printf '#!/bin/sh\necho "$@" >>%s/asked\n' "$TMPDIR" >"$TMPDIR/bin/apt-get"
printf '#!/bin/sh\nexec "$@"\n' >"$TMPDIR/bin/sudo"
chmod +x "$TMPDIR/bin/apt-get" "$TMPDIR/bin/sudo"
expect 'a missing cmocka is fetched' env PATH="$TMPDIR/bin:$PATH" make cmocka CC="$CC -nostdinc"
expect 'from the system packages' grep -q 'install.* libcmocka-dev' "$TMPDIR/asked"

help=$(make help)
for target in all debug install uninstall test test-all clean format check aarch64 musl tsan ubsan help; do
    expect "make help tells of $target" grep -q "^$target " <<<"$help"
done

close_suite
