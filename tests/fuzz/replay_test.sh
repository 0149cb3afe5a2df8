#!/usr/bin/env bash
# The committed corpus of each fuzzing target runs through without a fault; no fuzzer is needed for that.
# suite: limit 120 s, flavours release debug
set -u
passed=0
failed=0
skipped=0

replay() {
    local target=$1
    local corpus=$TEST_ROOT/tests/fuzz/corpus/$target.hex
    local program=$TEST_ROOT/build/fuzz/$TEST_FLAVOUR/replay-$target
    local said
    # Every input, and each again on the state that all of them left behind.
    if said=$("$program" "$corpus" "$corpus" 2>&1) &&
        grep -qx "$(($(wc -l <"$corpus") * 2)) inputs" <<<"${said##*$'\r'}"; then
        echo "$target: ${said##*$'\r'}"
        passed=$((passed + 1))
    else
        echo "$target: ${said##*$'\r'}"
        echo "last: $(tr '\r' '\n' <<<"$said" | tail -n 2)"
        failed=$((failed + 1))
    fi
}

# A corpus that is not there, or a target that finds nothing wrong in anything, must not look like one that passes.
for target in operations options pointers; do
    replay "$target"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
