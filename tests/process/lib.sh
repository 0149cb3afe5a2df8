#!/bin/sh
# What the scripts share that build a program of their own: sourced, not run. Counts; a folder and a compiler.
# shellcheck disable=SC2034 # whoever sources it reads them
set -u
cd "$TEST_ROOT" || exit 1
# shellcheck source=tests/support/counts.sh
. tests/support/counts.sh
dir=$TMPDIR
CC=${CC:-cc}

check_same() { # NAME WANTED GOT
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s\n  wanted: %s\n  got: %s\n' "$1" "$2" "$3"
    fi
}

check() { # NAME STATUS
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $1: exit status $2"
    fi
}
