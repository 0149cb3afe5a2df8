#!/usr/bin/env bash
# The committed corpus of each fuzzing target runs through without a fault; no fuzzer is needed for that.
# suite: limit 240 s, flavours release debug
set -u
passed=0
failed=0
skipped=0

# replay TIMES MODE TARGET [OPTION...]: every input, and then each again on the state that all of them left behind.
# The options make the mode.
replay() {
    local times=$1 mode=$2 target=$3
    shift 3
    local corpus=$TEST_ROOT/tests/fuzz/corpus/$target.hex
    local program=$TEST_ROOT/build/fuzz/$TEST_FLAVOUR/replay-$target
    local said corpora=("$corpus")
    [ "$times" = 1 ] || corpora+=("$corpus")
    if said=$(env "$@" "$program" "${corpora[@]}" 2>&1) &&
        grep -qx "$(($(wc -l <"$corpus") * times)) inputs" <<<"${said##*$'\r'}"; then
        echo "$mode $target: ${said##*$'\r'}"
        passed=$((passed + 1))
    else
        echo "$mode $target: ${said##*$'\r'}"
        echo "last: $(tr '\r' '\n' <<<"$said" | tail -n 2)"
        failed=$((failed + 1))
    fi
}

# A corpus that is not there, or a target that finds nothing wrong in anything, must not look like one that passes.
for target in operations options pointers; do
    replay 2 ordinary "$target" HAKMEM_CHECK=0
done
for target in operations pointers; do
    replay 1 checked "$target" HAKMEM_CHECK=1 HAKMEM_CHECK_FRAMES=0 HAKMEM_CHECK_QUARANTINE_MB=1
    replay 1 sampled "$target" HAKMEM_CHECK=0 HAKMEM_CHECK_FRAMES=2 HAKMEM_GUARD_SAMPLE=4
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
