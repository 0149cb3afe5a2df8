#!/usr/bin/env bash
# checked_test.sh - what checked mode finds: one process per fault, its report line by line, SIGABRT.
#
# suite: limit 120 s, flavours checked
# checked_faults states the first lines of each report and, after "...", fragments that follow in that order. Its cases
# sound_... end well. `checked_test.sh WORD` runs the cases whose name contains WORD alone.
set -u

readonly program=$TEST_PLAIN/misuse/checked_faults
readonly sigabrt_status=134
passed=0
failed=0

# fail NAME REASON: counts, and shows what the program stated and wrote.
fail() {
    failed=$((failed + 1))
    printf 'FAILED %s: %s\n  stated: %s\n  stderr: %s\n' "$1" "$2" "${stated//$'\n'/ | }" "${written:0:1500}"
}

# Whether $written begins with the lines of $stated and has its fragments, one behind the other.
is_as_stated() {
    local line rest="${written#hakmem: }"
    while IFS= read -r line; do
        if [[ $line == ...* ]]; then
            [[ $rest == *"${line#...}"* ]] || return 1
            rest=${rest#*"${line#...}"}
        else
            [[ $rest == "$line"$'\n'* ]] || return 1
            rest=${rest#"$line"$'\n'}
        fi
    done <<<"$stated"
}

# run_case CASE
run_case() {
    local status stated written
    stated=$(LD_PRELOAD=$TEST_SO exec "$program" "$1" 2>"$TMPDIR/stderr")
    status=$?
    written=$(<"$TMPDIR/stderr")$'\n'
    if [[ $1 == sound_* ]]; then
        if [[ $status -eq 0 && $stated == sound && $written == $'\n' ]]; then
            passed=$((passed + 1))
        else
            fail "$1" "exit status $status"
        fi
    elif [[ $stated == *survived* ]]; then
        fail "$1" "the fault passed unnoticed"
    elif [[ $status -ne $sigabrt_status ]]; then
        fail "$1" "exit status $status, not SIGABRT"
    elif ! is_as_stated; then
        fail "$1" "the report is not as stated"
    else
        passed=$((passed + 1))
    fi
}

for case in $("$program"); do
    if [[ $case == *${1:-}* ]]; then
        run_case "$case"
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[[ $failed -eq 0 && $passed -gt 0 ]]
