#!/usr/bin/env bash
# race_test.sh - a block freed by two threads at once: the exact line or, in release and for small blocks, nothing.
#
# suite: limit 120 s, flavours release debug checked
# How many pass in release is a matter of timing and no claim of this test; `race` prints it. Debug lets none pass,
# nor does checked mode, nor any flavour for large blocks.
set -u

# Where every one must be caught there are more: eight kinds of 250 are 2000 processes.
case $TEST_FLAVOUR in
release) readonly rounds=$((200 * TEST_SCALE)) ;;
*) readonly rounds=$((250 * TEST_SCALE)) ;;
esac
passed=0
failed=0

# race PAIR BYTES KIND
race() {
    local result
    if ! result=$(LD_PRELOAD=$TEST_SO "$TEST_PLAIN/misuse/race" "$1" "$2" "$rounds" 2>&1); then
        failed=$((failed + 1))
        printf 'FAILED %s %s: neither caught nor passed\n%s\n' "$1" "$2" "${result:0:1000}"
    elif [[ $result != *" 0 passed" && ($3 == large || $TEST_FLAVOUR != release) ]]; then
        failed=$((failed + 1))
        printf 'FAILED %s %s: %s\n' "$1" "$2" "$result"
    else
        passed=$((passed + 1))
        printf '%s, %s bytes: %s\n' "$1" "$2" "$result"
    fi
}

for pair in owner others; do
    race "$pair" 64 small
    race "$pair" 5000 small
    race "$pair" 100000 large
    race "$pair" 2097152 large
done
echo "$passed passed, $failed failed, 0 skipped"
[[ $failed -eq 0 ]]
