#!/usr/bin/env bash
# What the program tests share: sourced, not run. Runs a program on libc's malloc and on hakmem and compares.
#
# Everything a program prints, its exit status, and the files that it is said to leave must be the same. Sizes
# grow with TEST_SCALE.

set -u
if [[ -z ${TEST_ROOT:-} ]]; then # started by hand
    TEST_ROOT=$(cd "$(dirname "$0")/../.." && pwd)
    TEST_SO=${TEST_SO:-$TEST_ROOT/libhakmem.so}
    TMPDIR=$(mktemp -d)
    export TMPDIR
    trap 'rm -rf "$TMPDIR"' EXIT
fi
# shellcheck disable=SC2034 # for the suites
readonly data=$TEST_ROOT/tests/programs/data
# shellcheck disable=SC2034
readonly scale=${TEST_SCALE:-1}
passed=0
failed=0
skipped=0
# Options of a make that runs these tests, and locales, are none of the programs'.
unset MAKEFLAGS MFLAGS CFLAGS CPPFLAGS LDFLAGS
export LC_ALL=C TZ=UTC

pass() {
    passed=$((passed + 1))
}

# fail NAME REASON [FILE...]: the ends of the files are shown.
fail() {
    failed=$((failed + 1))
    echo "FAILED: $1: $2"
    shift 2
    for file in "$@"; do
        echo "--- $file"
        tail -n 15 "$file"
    done
}

# skip NAME REASON
skip() {
    skipped=$((skipped + 1))
    echo "skipped: $1: $2"
}

# needs NAME PROGRAM...: true when all programs are there; otherwise NAME is skipped, by name.
needs() {
    local name=$1 program
    shift
    for program in "$@"; do
        if ! command -v "$program" >/dev/null; then
            skip "$name" "$program is not installed"
            return 1
        fi
    done
}

# start_redis: a server for one side alone, at $PWD/socket, its id in the caller's $pid; ended with the side's subshell.
start_redis() {
    redis-server --port 0 --unixsocket "$PWD/socket" --save '' --daemonize no --dir "$PWD" >log 2>&1 &
    pid=$!
    trap 'kill "$pid" 2>/dev/null' EXIT # of this side's subshell
    for _ in {1..1200}; do
        [[ -S socket ]] && break
        sleep 0.05
    done
}

# in_effect NAME COMMAND...: the program really runs on hakmem: asked to, the library reports from inside it.
in_effect() {
    local name=$1
    shift
    if LD_PRELOAD=$TEST_SO HAKMEM_STATS=1 "$@" </dev/null 2>&1 | grep 'hakmem: heap of process' >/dev/null; then
        pass
    else
        fail "$name" "hakmem is not in effect in: $*"
    fi
}

# run_side SIDE NAME FUNCTION: one run in a fresh folder; sets `status` and `seconds`.
run_side() {
    local folder=$TMPDIR/$2.$1 start
    mkdir -p "$folder"
    start=$EPOCHREALTIME
    (
        cd "$folder" || exit 99
        if [[ $1 == hakmem ]]; then
            export LD_PRELOAD=$TEST_SO
        else
            unset LD_PRELOAD
        fi
        "$3"
    ) >"$folder.out" 2>"$folder.err" </dev/null
    status=$?
    seconds=$(((${EPOCHREALTIME/./} - ${start/./}) / 10000))
}

# compare NAME FUNCTION [FILE...]: the function's output, status and files on libc's malloc and on hakmem.
compare() {
    local name=$1 function=$2 libc=$TMPDIR/$1.libc own=$TMPDIR/$1.hakmem libc_seconds file
    shift 2
    run_side libc "$name" "$function"
    local libc_status=$status
    libc_seconds=$seconds
    run_side hakmem "$name" "$function"
    printf '%s: libc %d.%02d s, hakmem %d.%02d s\n' "$name" $((libc_seconds / 100)) $((libc_seconds % 100)) \
        $((seconds / 100)) $((seconds % 100))
    if [[ $libc_status -ne 0 ]]; then
        fail "$name" "fails on libc's malloc already, status $libc_status" "$libc.out" "$libc.err"
        return
    fi
    if [[ $status -ne 0 ]]; then
        fail "$name" "status $status" "$own.out" "$own.err"
        return
    fi
    if [[ ! -s $libc.out ]]; then
        fail "$name" "prints nothing: there is nothing to compare"
        return
    fi
    if ! cmp -s "$libc.out" "$own.out"; then
        diff "$libc.out" "$own.out" | head -n 20 >"$TMPDIR/diff"
        fail "$name" "output differs" "$TMPDIR/diff" "$own.err"
        return
    fi
    if ! cmp -s "$libc.err" "$own.err"; then
        fail "$name" "stderr differs" "$libc.err" "$own.err"
        return
    fi
    for file in "$@"; do
        if ! cmp "$libc/$file" "$own/$file"; then
            fail "$name" "$file differs"
            return
        fi
    done
    pass
    rm -rf "$libc" "$own"
}

# finish: the closing line; the suite's last command.
finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [[ $failed -eq 0 ]]
}
