#!/bin/sh
# table_test.sh - the README's table of faults is true of this library, and the check can fail.
#
# suite: flavours release
set -u
cd "${TEST_ROOT:-.}" || exit 1
passed=0
failed=0
copy=$TMPDIR/readme

# expect NAME STATUS COMMAND...: runs the command, whose exit status must be STATUS.
expect() {
    name=$1 wanted=$2
    shift 2
    "$@" >"$copy.out" 2>&1
    got=$?
    if [ "$got" = "$wanted" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name: exit status $got, not $wanted"
        cat "$copy.out"
    fi
}

expect 'the README says what hakmem does' 0 tests/misuse/table --check README.md
sed 's/^\(| + 8 | `\)AAAA/\1AA-A/' README.md >"$copy"
expect 'an untrue cell is found' 1 tests/misuse/table --check "$copy"
grep -v '^| + 8 |' README.md >"$copy"
expect 'a missing row is found' 1 tests/misuse/table --check "$copy"
grep -v 'end of misuse' README.md >"$copy"
expect 'a missing marker is found' 1 tests/misuse/table --check "$copy"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
