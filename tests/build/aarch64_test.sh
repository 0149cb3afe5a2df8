#!/bin/bash
# suite: limit 600 s
# The library for aarch64 works: threads, sizes and faults of programs of that machine, under QEMU's user mode. What the
# emulator does not carry out (core/os/memory_linux.c) must not be missed either. It says nothing about memory order.
. "$(dirname "$0")/lib.sh" || exit 1

cross=aarch64-linux-gnu-gcc
for tool in "$cross" qemu-aarch64-static; do
    if ! command -v "$tool" >/dev/null; then
        skip aarch64 "$tool is not installed"
        close_suite
    fi
done

tree=$TMPDIR/tree
copy_sources "$tree"
copy_tests "$tree"
cd "$tree" || exit 1
programs=(larson prodcons random_mixed realloc_grow calloc_large thread_churn)
replays=(operations pointers)
libc=/usr/aarch64-linux-gnu/lib # where the cross compiler's stands; a prefix told to QEMU (-L) makes programs hang
expect 'compiles' make -s CC="$cross" CXX=${cross%gcc}g++ \
    LDFLAGS="-Wl,--dynamic-linker=$libc/ld-linux-aarch64.so.1 -Wl,-rpath,$libc" libhakmem.so "${programs[@]/#/build/bench/}" \
    "${replays[@]/#/build/fuzz/release/replay-}"

# A child that is forked while the emulator holds a lock of its own waits for ever and takes no other signal: it would
# outlive its parent, and keep who reads its output waiting.
emulated() {
    timeout -s KILL 120 qemu-aarch64-static "$@"
}

# preloaded PROGRAM ARGUMENTS...: runs to its end on hakmem.
preloaded() {
    emulated -E LD_PRELOAD="$tree/libhakmem.so" -E HAKMEM_STATS=1 "build/bench/$1" "${@:2}" 2>&1 | tee said
    grep -q '^hakmem: heap of process' said && grep -q 'Throughput' said
}

# replays TARGET: every input of the corpus.
replays() {
    emulated "build/fuzz/release/replay-$1" "tests/fuzz/corpus/$1.hex" 2>&1 | tr '\r' '\n' |
        grep -qx "$(wc -l <"tests/fuzz/corpus/$1.hex") inputs"
}

expect 'sizes replaced at random' preloaded random_mixed 200000 4096
expect 'threads that free what others allocated' preloaded larson 200000 500 42 --threads=4
expect 'threads that hand blocks on' preloaded prodcons 100000
expect 'blocks that grow' preloaded realloc_grow 100000
expect 'large zeroed blocks' preloaded calloc_large 200
expect 'threads that come and go' preloaded thread_churn 200
for target in "${replays[@]}"; do
    expect "the corpus: $target" replays "$target"
done

close_suite
