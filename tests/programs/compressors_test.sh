#!/usr/bin/env bash
# compressors_test.sh - xz and zstd, with threads, write the same files on hakmem as on libc's malloc.
#
# suite: limit 90 s, flavours release debug
# shellcheck source=tests/programs/lib.sh
. "$(dirname "$0")/lib.sh"

write_input() {
    seq 1 $((150000 * scale)) | awk '{ print $1, $1 * 7919 % 10007, "some text that repeats" }' >input
}

run_xz() {
    write_input
    xz -k -T2 -2 --block-size=1MiB input && xz -dc input.xz | cmp - input && cksum input.xz
}

run_zstd() {
    write_input
    zstd -q -k -T2 -6 input && zstd -q -dc input.zst | cmp - input && cksum input.zst
}

if needs xz xz; then
    in_effect xz xz --version
    compare xz run_xz input.xz
fi
if needs zstd zstd; then
    in_effect zstd zstd --version
    compare zstd run_zstd input.zst
fi
finish
