#!/usr/bin/env bash
# What the tests of faults share that each run in a process of its own: sourced, not run.

set -u
# shellcheck disable=SC2034 # for the suites
readonly sigabrt_status=134
# shellcheck disable=SC2034
passed=0
failed=0

# fail NAME REASON: counts, and shows what the program stated and wrote, in the caller's $stated and $written.
fail() {
    failed=$((failed + 1))
    # shellcheck disable=SC2154
    printf 'FAILED %s: %s\n  stated: %s\n  stderr: %s\n' "$1" "$2" "${stated//$'\n'/ | }" "${written:0:1500}"
}
