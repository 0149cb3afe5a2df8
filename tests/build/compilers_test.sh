#!/bin/bash
# suite: slow, limit 1800 s
# Every way to compile hakmem that the Makefile offers compiles without a warning, and what can run here runs.
. "$(dirname "$0")/lib.sh" || exit 1

tree=$TMPDIR/tree
copy_sources "$tree"
cd "$tree" || exit 1

have() {
    command -v "$1" >/dev/null
}
# preloads LIBRARY: a real program starts and ends under it.
preloads() {
    LD_PRELOAD=$tree/$1 python3 -c 'print(sum(len(str(i)) for i in range(10000)))' | grep -qx 38890
}

# builds NAME ARGUMENTS...: make succeeds from clean.
builds() {
    make -s clean
    expect "$1 compiles" make WERROR=-Werror "${@:2}"
}

builds 'NATIVE=1' CC="$CC" NATIVE=1
expect 'NATIVE=1 runs' preloads libhakmem.so
builds 'HAKMEM_DEBUG_COUNTERS=1' CC="$CC" HAKMEM_DEBUG_COUNTERS=1
expect 'HAKMEM_DEBUG_COUNTERS=1 runs' preloads libhakmem.so
builds 'LTO=0' CC="$CC" LTO=0
expect 'LTO=0 runs' preloads libhakmem.so
builds 'gcc without optimisation' CC="$CC" CFLAGS=-O0 LTO=0
expect 'gcc without optimisation runs' preloads libhakmem.so
if have clang; then
    builds 'clang' CC=clang all debug
    expect 'clang runs' preloads libhakmem.so
    expect 'clang, debug, runs' preloads libhakmem-debug.so
    builds 'clang without optimisation' CC=clang CFLAGS=-O0 LTO=0
    expect 'clang without optimisation runs' preloads libhakmem.so
    copy_tests "$tree"
    builds 'clang, the test programs, with sanitizers too' -j2 CC=clang CXX=clang++ test-programs
    builds 'clang, the fuzzing programs' -j2 fuzz-programs
else
    skip clang 'not installed'
fi
if have gcc && [ "$CC" != gcc ]; then
    builds 'gcc' CC=gcc all debug
    expect 'gcc runs' preloads libhakmem.so
fi
if have aarch64-linux-gnu-gcc; then
    builds 'aarch64' aarch64
    expect 'aarch64 gives a library of that machine' \
        grep -q 'Machine:.*AArch64' <(readelf -h build/aarch64/libhakmem.so)
else
    skip aarch64 'aarch64-linux-gnu-gcc is not installed'
fi
if have musl-gcc; then
    builds 'musl' musl
    printf '#include <stdlib.h>\nint main(void) {\n    free(realloc(malloc(1), 100000));\n    return 0;\n}\n' >hello.c
    expect 'musl: a program compiles' musl-gcc -fno-builtin hello.c -o hello
    expect 'musl: runs' env LD_PRELOAD="$tree/build/musl/libhakmem.so" ./hello
    expect 'musl: a program links' musl-gcc -fno-builtin hello.c -L"$tree/build/musl" -lhakmem -o linked
    expect 'musl: finds the library by its soname' env LD_LIBRARY_PATH="$tree/build/musl" ./linked
else
    skip musl 'musl-gcc is not installed'
fi

close_suite
