#!/usr/bin/env bash
# misuse_test.sh - one process per heap fault: the exact line on stderr, SIGABRT, nothing else.
#
# suite: limit 120 s
# Each program beside this file lists its cases, states per case which lines are right, and commits the fault.
# `misuse_test.sh WORD` runs the cases whose name contains WORD alone.

# shellcheck source=tests/misuse/lib.sh
source "${BASH_SOURCE%/*}/lib.sh"

readonly programs=(double_free invalid_pointer foreign_pointer other_names forms forked)

# run_case PROGRAM CASE
run_case() {
    local status stated written line
    stated=$(LD_PRELOAD=$TEST_SO exec "$TEST_PLAIN/misuse/$1" "$2" 2>"$TMPDIR/stderr")
    status=$?
    written=$(<"$TMPDIR/stderr")
    if [[ $stated == *survived* ]]; then
        fail "$1 $2" "the fault passed unnoticed"
    elif [[ $status -ne $sigabrt_status ]]; then
        fail "$1 $2" "exit status $status, not SIGABRT"
    else
        while read -r line; do
            if [[ $written == "hakmem: $line" ]]; then
                passed=$((passed + 1))
                return
            fi
        done <<<"$stated"
        fail "$1 $2" "the line on stderr is none of those stated"
    fi
}

for program in "${programs[@]}"; do
    cases=$("$TEST_PLAIN/misuse/$program")
    if [[ -z $cases ]]; then
        stated='' written=''
        fail "$program" "lists no cases"
    fi
    for case in $cases; do
        if [[ "$program $case" == *${1:-}* ]]; then
            run_case "$program" "$case"
        fi
    done
done
echo "$passed passed, $failed failed, 0 skipped"
[[ $failed -eq 0 ]]
