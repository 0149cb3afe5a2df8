#!/usr/bin/env bash
# checked_test.sh - what checked mode and guard sampling find: one process per fault, its report line by line, the signal.
#
# suite: limit 120 s, flavours checked
# checked_faults (HAKMEM_CHECK=1), sampled_faults and segv_handlers (HAKMEM_GUARD_SAMPLE=1) state the first lines of each
# report and, after "...", fragments that follow in that order. Cases segv_... end by SIGSEGV after one report,
# segv_silent_... with none at all, sound_... and report_... well, the others by SIGABRT. `checked_test.sh WORD` runs those
# whose name contains WORD alone.

# shellcheck source=tests/misuse/lib.sh
source "${BASH_SOURCE%/*}/lib.sh"

readonly sigsegv_status=139
preload=$TEST_SO

# Whether $written begins with the lines of $stated and has its fragments, one behind the other.
is_as_stated() {
    local line rest="${written#hakmem: }"
    [[ $rest != *hakmem:* ]] || return 1 # one report
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

# run_case PROGRAM CASE
run_case() {
    local status stated written expected=$sigabrt_status
    case $2 in
    segv_*) expected=$sigsegv_status ;;
    sound_* | report_*) expected=0 ;;
    esac
    stated=$(LD_PRELOAD=$preload exec "$TEST_PLAIN/misuse/$1" "$2" 2>"$TMPDIR/stderr")
    status=$?
    written=$(<"$TMPDIR/stderr")$'\n'
    if [[ $stated == *survived* ]]; then
        fail "$2" "the fault passed unnoticed"
    elif [[ $status -ne $expected ]]; then
        fail "$2" "exit status $status, not $expected"
    elif [[ $2 == sound_* && $stated$written != sound$'\n' ]]; then
        fail "$2" "it was not sound, or not silent"
    elif [[ $2 == *_silent_* && $stated$written != $'\n' ]]; then
        fail "$2" "it was not silent"
    elif [[ $2 != sound_* && $2 != *_silent_* ]] && ! is_as_stated; then
        fail "$2" "the report is not as stated"
    else
        passed=$((passed + 1))
    fi
}

# run_cases PROGRAM WORD: the cases that were run are counted in $ran
run_cases() {
    local case
    ran=0
    for case in $("$TEST_PLAIN/misuse/$1"); do
        if [[ $case == *$2* ]]; then
            ran=$((ran + 1))
            run_case "$1" "$case"
        fi
    done
}

export HAKMEM_CHECK=1
run_cases checked_faults "${1:-}"
export HAKMEM_CHECK=0 HAKMEM_GUARD_SAMPLE=1
run_cases sampled_faults "${1:-}"
run_cases segv_handlers "${1:-}"
# Without guard markers, as before Linux 6.13.
preload="$TEST_PLAIN/plugins/failing_calls.so $TEST_SO"
export TEST_FAIL="madvise 22 1 1000000000 $TMPDIR/failed"
run_cases sampled_faults "${1:-}"
stated='' written=''
[[ $ran -eq 0 || -s $TMPDIR/failed ]] || fail failing_calls 'no call was made to fail'
unset TEST_FAIL HAKMEM_GUARD_SAMPLE
if [[ $# -eq 0 ]]; then
    for case in wrong_size_of_delete wrong_size_of_free_sized wrong_alignment_of_delete; do
        stated=$(HAKMEM_CHECK=1 HAKMEM_CHECK_CLAIMS=0 LD_PRELOAD=$TEST_SO "$TEST_PLAIN/misuse/checked_faults" "$case" 2>"$TMPDIR/stderr")
        written=$(<"$TMPDIR/stderr")
        if [[ $stated == *survived* && -z $written ]]; then
            passed=$((passed + 1))
        else
            fail "$case" 'it was not to be looked at'
        fi
    done
    # By hand: a word that the name of one case has, in one of the two programs alone.
    written=$("${BASH_SOURCE[0]}" usable_size_of_nothing 2>&1)
    if [[ $written == '1 passed, 0 failed, 0 skipped' ]]; then
        passed=$((passed + 1))
    else
        fail by_hand 'it did not end well'
    fi
fi
echo "$passed passed, $failed failed, 0 skipped"
[[ $failed -eq 0 && $passed -gt 0 ]]
