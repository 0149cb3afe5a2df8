#!/bin/sh
# suite: limit 60 s
# The README's table of options is the one that the code has, and the check can fail.
set -u
cd "${TEST_ROOT:-.}" || exit 1
passed=0
failed=0
copy=${TMPDIR:-/tmp}/options_table_readme.$$

# expect NAME STATUS COMMAND...: runs the command, whose exit status must be STATUS.
expect() {
    name=$1 wanted=$2
    shift 2
    "$@" > "$copy.out" 2>&1
    got=$?
    if [ "$got" = "$wanted" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name: exit status $got, not $wanted"
        cat "$copy.out"
    fi
}

expect 'the README has the table of this code' 0 tests/checks/options_table --check README.md
sed 's/HAKMEM_RETAIN_MB/HAKMEM_RETAIN_GB/' README.md > "$copy"
expect 'a changed row is found' 1 tests/checks/options_table --check "$copy"
grep -v HAKMEM_STATS README.md > "$copy"
expect 'a missing row is found' 1 tests/checks/options_table --check "$copy"
expect 'writing puts it right' 0 tests/checks/options_table --write "$copy"
expect 'what was written passes' 0 tests/checks/options_table --check "$copy"
grep -v 'end of options' README.md > "$copy"
expect 'a missing marker is found' 1 tests/checks/options_table --check "$copy"
rm -f "$copy" "$copy.out"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
