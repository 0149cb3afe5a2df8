#!/bin/sh
# What suites that are scripts count, and their closing line: sourced, not run.
# shellcheck disable=SC2034 # whoever sources it counts
passed=0
failed=0
skipped=0

# Last line of every suite.
close_suite() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
    exit
}
