#!/bin/sh
# What the scripts share that build a program of their own: sourced, not run. Counts; a folder and a compiler.
# shellcheck disable=SC2034 # whoever sources it reads them
set -u
cd "$TEST_ROOT" || exit 1
# shellcheck source=tests/support/counts.sh
. tests/support/counts.sh
dir=$TMPDIR
CC=${CC:-cc}

check() { # NAME STATUS
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $1: exit status $2"
    fi
}
