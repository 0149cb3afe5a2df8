#!/bin/sh
# What the tests of tables in the README share: sourced, not run. Counts, and a copy that may be spoilt.
# shellcheck disable=SC2034 # whoever sources it reads them
set -u
cd "${TEST_ROOT:-.}" || exit 1
passed=0
failed=0
copy=${TMPDIR:-/tmp}/readme_table.$$
trap 'rm -f "$copy" "$copy.out"' EXIT

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
