#!/bin/sh
# table_test.sh - the README's table of faults is true of this library, and the check can fail.
#
# suite: flavours release
# shellcheck source=tests/support/readme_table.sh
. "${TEST_ROOT:-.}/tests/support/readme_table.sh"

expect 'the README says what hakmem does' 0 tests/misuse/table --check README.md
sed 's/^\(| + 8 | `\)AAAA/\1AA-A/' README.md >"$copy"
expect 'an untrue cell is found' 1 tests/misuse/table --check "$copy"
grep -v '^| + 8 |' README.md >"$copy"
expect 'a missing row is found' 1 tests/misuse/table --check "$copy"
grep -v 'end of misuse' README.md >"$copy"
expect 'a missing marker is found' 1 tests/misuse/table --check "$copy"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
