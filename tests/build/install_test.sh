#!/bin/bash
# suite: limit 180 s, room 80 MiB
# `make install` puts a library in place that C and C++ programs find, by every way there is to link it, and
# `make uninstall` takes all of it away again.
. "$(dirname "$0")/lib.sh" || exit 1

tree=$TMPDIR/tree
copy_sources "$tree"
# What was built comes along with its times, so that installing compiles nothing.
cp -a "$TEST_ROOT"/libhakmem.so "$TEST_ROOT"/libhakmem.a "$tree/"
mkdir -p "$tree/build"
cp -a "$TEST_ROOT/build/release" "$TEST_ROOT/build/archive" "$tree/build/"
find "$tree/core" "$tree/include" -type f -exec touch -d '2000-01-01' {} +
cd "$TMPDIR" || exit 1

version=$(awk '/define HAK_VERSION_M|define HAK_VERSION_P/ { printf "%s%s", dot, $3; dot = "." }' \
    "$tree/include/hakmem.h")
prefix=$TMPDIR/usr

cat >program.c <<'END'
#include <errno.h>
#include <hakmem.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Blocks of the program's own, of libc's and of another thread's are all hakmem's. */
static void *work(void *unused) {
    (void)unused;
    void *aligned = NULL;
    char *copy = strdup("a block that libc asks for");
    void *own = malloc(100);
    own = realloc(own, 100000);
    int wrong = posix_memalign(&aligned, 4096, 100) != 0 || !hak_owns(copy) || !hak_owns(own) ||
                !hak_owns(aligned) || malloc_usable_size(own) < 100000;
    free(aligned);
    free(own);
    free(copy);
    return wrong ? &errno : NULL;
}

int main(void) {
    pthread_t thread;
    void *bad = NULL;
    int status = 1;
    if (work(NULL) != NULL || pthread_create(&thread, NULL, work, NULL) != 0 ||
        pthread_join(thread, &bad) != 0 || bad != NULL) {
        return 1;
    }
    pid_t child = fork();
    if (child == 0) {
        _exit(work(NULL) != NULL);
    }
    if (waitpid(child, &status, 0) != child || status != 0) {
        return 2;
    }
    return hak_version() < 0;
}
END
# Two operators of its own, by which the others are defined.
cat >operators.cc <<'END'
#include <cstdlib>
#include <new>
#include <string>

static long live;

void *operator new(std::size_t bytes) {
    live++;
    return static_cast<char *>(std::malloc(bytes + 16)) + 16;
}

void operator delete(void *block) noexcept {
    if (block != nullptr) {
        live--;
        std::free(static_cast<char *>(block) - 16);
    }
}

int main(int argc, char **argv) {
    std::string *texts = new std::string[3]{std::string(100, 'a'), argv[0], std::string(argc * 50u, 'b')};
    int *one = new (std::nothrow) int(argc);
    bool is_whole = texts[0].size() == 100 && *one == argc && live >= 4;
    delete one;
    delete[] texts;
    return is_whole && live == 0 ? 0 : 1;
}
END
cat >program.cc <<'END'
#include <hakmem.h>
#include <map>
#include <memory>
#include <new>
#include <string>

struct alignas(128) wide {
    char bytes[128];
};

int main() {
    std::map<int, std::string> map;
    for (int i = 0; i < 1000; i++) {
        map[i] = std::string(static_cast<size_t>(i), 'x');
    }
    auto block = std::make_unique<wide>();
    auto array = std::make_unique<int[]>(1000);
    if (!hak_owns(block.get()) || !hak_owns(array.get()) || !hak_owns(map[999].data())) {
        return 1;
    }
    volatile size_t huge = static_cast<size_t>(1) << 62;
    try {
        delete[] new char[huge];
        return 2;
    } catch (const std::bad_alloc &) {
    }
    return new (std::nothrow) char[huge] != nullptr;
}
END

installed() {
    (cd "$1" && find . -type f -o -type l | sort)
}
wanted="./include/hakmem.h
./lib/libhakmem.a
./lib/libhakmem.so
./lib/libhakmem.so.${version%%.*}
./lib/libhakmem.so.$version
./lib/pkgconfig/hakmem.pc"

# runs PROGRAM: it succeeds with the library where it was installed.
runs() {
    LD_LIBRARY_PATH=$prefix/lib "$1"
}
needs_hakmem() {
    readelf -d "$1" | grep -q "NEEDED.*\[libhakmem.so.${version%%.*}\]"
}
# links NAME COMMAND...: builds ./NAME and runs it.
links() {
    expect "$1: links" "${@:2}" -o "$1"
    expect "$1: runs" runs "./$1"
}

expect 'make install' make -C "$tree" CC="$CC" PREFIX="$prefix" install
expect_not 'compiles nothing that was built' grep -q '^  CC ' "$TMPDIR/output"
expect 'installs these files and no others' test "$(installed "$prefix")" = "$wanted"
expect 'the soname leads to the library' test "$(readlink -f "$prefix/lib/libhakmem.so")" = \
    "$(readlink -f "$prefix/lib/libhakmem.so.$version")"

expect 'DESTDIR stands before PREFIX' make -C "$tree" CC="$CC" DESTDIR="$TMPDIR/stage" PREFIX=/opt/hak install
expect 'and holds the same files' test "$(installed "$TMPDIR/stage/opt/hak")" = "$wanted"
expect_not 'which do not name it' grep -q stage "$TMPDIR/stage/opt/hak/lib/pkgconfig/hakmem.pc"
expect 'DESTDIR may have a blank in it' make -C "$tree" CC="$CC" DESTDIR="$TMPDIR/a stage" PREFIX=/opt/hak install
expect 'which the files lie behind' test "$(installed "$TMPDIR/a stage/opt/hak")" = "$wanted"
expect 'and are removed from' make -C "$tree" CC="$CC" DESTDIR="$TMPDIR/a stage" PREFIX=/opt/hak uninstall
expect 'all of them' test -z "$(installed "$TMPDIR/a stage/opt/hak")"
expect 'LIBDIR moves the libraries' make -C "$tree" CC="$CC" PREFIX="$TMPDIR/multi" LIBDIR="$TMPDIR/multi/lib/x" install
expect 'all of them' test -s "$TMPDIR/multi/lib/x/libhakmem.a" -a -s "$TMPDIR/multi/lib/x/pkgconfig/hakmem.pc"

read -ra flags <<<"-I$prefix/include -L$prefix/lib"
if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
    read -ra asked <<<"$(pkg-config --cflags --libs hakmem)"
    expect 'pkg-config knows the version' test "$(pkg-config --modversion hakmem)" = "$version"
    links by-pkg-config "$CC" program.c "${asked[@]}" -pthread
    expect 'by-pkg-config: needs the library' needs_hakmem by-pkg-config
    links cxx-by-pkg-config "$CXX" program.cc "${asked[@]}"
    expect 'cxx-by-pkg-config: needs the library' needs_hakmem cxx-by-pkg-config
else
    skip 'pkg-config' 'not installed'
fi
links by-name "$CC" program.c "${flags[@]}" -lhakmem -pthread
expect 'by-name: needs the library' needs_hakmem by-name
links as-needed "$CC" program.c "${flags[@]}" -Wl,--as-needed -lhakmem -pthread
links archive "$CC" program.c "${flags[@]}" "$prefix/lib/libhakmem.a" -pthread
expect_not 'archive: needs no library' needs_hakmem archive
links cxx-archive "$CXX" program.cc "${flags[@]}" "$prefix/lib/libhakmem.a"
expect_not 'cxx-archive: needs no library' needs_hakmem cxx-archive
links archive-no-lto "$CC" -fno-lto program.c "${flags[@]}" "$prefix/lib/libhakmem.a" -pthread
links archive-lto "$CC" -O2 -flto program.c "${flags[@]}" "$prefix/lib/libhakmem.a" -pthread
links whole-static "$CC" -static -fno-lto program.c "${flags[@]}" -lhakmem -pthread
links cxx-operators-archive "$CXX" operators.cc "${flags[@]}" "$prefix/lib/libhakmem.a"
links cxx-operators-lto "$CXX" -O2 -flto operators.cc "${flags[@]}" "$prefix/lib/libhakmem.a"
links cxx-operators-by-name "$CXX" operators.cc "${flags[@]}" -lhakmem
links cxx-whole-static "$CXX" -static -fno-lto program.cc "${flags[@]}" -lhakmem

expect 'make uninstall' make -C "$tree" CC="$CC" PREFIX="$prefix" uninstall
expect 'leaves no file' test -z "$(installed "$prefix")"
expect 'the same with DESTDIR' make -C "$tree" CC="$CC" DESTDIR="$TMPDIR/stage" PREFIX=/opt/hak uninstall
expect 'leaves no file there' test -z "$(installed "$TMPDIR/stage")"

close_suite
