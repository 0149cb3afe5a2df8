#!/usr/bin/env bash
# checked_test.sh - python3, git, gcc and a redis server run in checked mode, and with one of 20 allocations between
# guard pages, as on libc's malloc: the same output, and no report. python3's faulthandler says where it died.
#
# suite: limit 150 s, flavours checked
# shellcheck source=tests/programs/lib.sh
. "$(dirname "$0")/lib.sh"

run_python() {
    PYTHONMALLOC=malloc python3 -c '
import json, re, threading, zlib
def work(seed):
    data = [{"number": i * seed, "text": "x" * (i % 97)} for i in range(1500)]
    text = json.dumps(data)
    results[seed] = (len(zlib.compress(text.encode())), len(re.findall("x+", text)), json.loads(text) == data)
results = {}
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sorted(results.items()))'
}

run_gcc() {
    local i
    for ((i = 0; i < 40 * scale; i++)); do
        echo "int f$i(int a, int *b) { for (int i = 0; i < a; i++) b[i] += a ^ i; return a % 3 ? b[0] : a * $i; }"
    done >file.c
    gcc -O2 -c file.c -o file.o && cksum file.o
}

run_git() {
    local commit i
    export GIT_AUTHOR_DATE='2024-01-01T00:00:00Z' GIT_COMMITTER_DATE='2024-01-01T00:00:00Z'
    export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
    export GIT_AUTHOR_NAME=tester GIT_COMMITTER_NAME=tester
    export GIT_AUTHOR_EMAIL=tester@example.org GIT_COMMITTER_EMAIL=tester@example.org
    git -c init.defaultBranch=main init -q work || return
    for ((commit = 0; commit < 3; commit++)); do
        for ((i = 0; i < 20 * scale; i++)); do
            seq $((i * commit)) $((i * commit + 200)) >"work/file$i"
        done
        git -C work add -A && git -C work commit -q -m "commit $commit" || return
    done
    git -C work gc -q && git -C work fsck --full --strict && git -C work log --stat --format='%H %s'
}

run_redis() {
    local pid status i
    start_redis
    for ((i = 0; i < 500 * scale; i++)); do
        echo "SET key$((i % 303)) $(printf 'v%.0s' {1..30})$i"
        echo "LPUSH list$((i % 17)) element$i"
        echo "HSET hash$((i % 29)) field$((i % 101)) value$i"
    done | redis-cli -s "$PWD/socket" | cksum
    redis-cli -s "$PWD/socket" DBSIZE
    status=$?
    # shellcheck disable=SC2031 # compare sets it for the side
    if [[ -n ${LD_PRELOAD:-} ]] && ! grep -q "${LD_PRELOAD##*/}" "/proc/$pid/maps"; then
        echo 'the server is not preloaded'
    fi
    kill "$pid"
    wait "$pid" || status=$?
    grep 'hakmem:' log
    return $status
}

# The handler puts back what it found when it was installed, and raises the signal again.
run_faulthandler() {
    ulimit -c 0
    HAKMEM_GUARD_SAMPLE=1 timeout 60 python3 -X faulthandler -c 'import ctypes; ctypes.string_at(0)' 2>&1 |
        sed 's/0x[0-9a-f]*/0x/'
    echo "status ${PIPESTATUS[0]}"
}

compare_all() {
    if needs "python3 $1" python3; then
        compare "python3_$1" run_python
    fi
    if needs "gcc $1" gcc; then
        compare "gcc_$1" run_gcc
    fi
    if needs "git $1" git; then
        compare "git_$1" run_git
    fi
    if needs "redis $1" redis-server redis-cli; then
        compare "redis_$1" run_redis
    fi
}

export HAKMEM_CHECK=1
compare_all checked
export HAKMEM_CHECK=0 HAKMEM_GUARD_SAMPLE=20
compare_all sampled
if needs faulthandler python3; then
    compare faulthandler run_faulthandler
fi
finish
