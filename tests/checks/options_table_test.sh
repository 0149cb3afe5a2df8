#!/bin/sh
# suite: limit 60 s
# The README's table of options is the one that the code has, and the check can fail.
# shellcheck source=tests/support/readme_table.sh
. "${TEST_ROOT:-.}/tests/support/readme_table.sh"

expect 'the README has the table of this code' 0 tests/checks/options_table --check README.md
sed 's/HAKMEM_RETAIN_MB/HAKMEM_RETAIN_GB/' README.md > "$copy"
expect 'a changed row is found' 1 tests/checks/options_table --check "$copy"
grep -v HAKMEM_STATS README.md > "$copy"
expect 'a missing row is found' 1 tests/checks/options_table --check "$copy"
expect 'writing puts it right' 0 tests/checks/options_table --write "$copy"
expect 'what was written passes' 0 tests/checks/options_table --check "$copy"
grep -v 'end of options' README.md > "$copy"
expect 'a missing marker is found' 1 tests/checks/options_table --check "$copy"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
