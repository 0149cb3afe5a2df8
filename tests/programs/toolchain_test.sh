#!/usr/bin/env bash
# toolchain_test.sh - gcc, g++, make and git produce the same on hakmem as on libc's malloc.
#
# suite: limit 150 s
# shellcheck source=tests/programs/lib.sh
. "$(dirname "$0")/lib.sh"

# A C file with many functions, the same every time.
write_c_file() {
    local i
    for ((i = 0; i < 150 * scale; i++)); do
        printf 'int f%d(int a, int *b) { int c = a * %d; for (int i = 0; i < a; i++) b[i] += c ^ i; ' $i $i
        printf 'switch (a %% 5) { case 0: return c; case 1: return b[0]; default: return a + %d; } }\n' $i
    done
}

run_gcc() {
    write_c_file >file.c
    gcc -O2 -c file.c -o file.o && cksum file.o
}

run_gxx() {
    cp "$data/workload.cc" .
    g++ -std=c++17 -O1 -c workload.cc -o workload.o && cksum workload.o
}

run_make() {
    local i
    {
        printf 'all:'
        for ((i = 0; i < 60; i++)); do
            printf ' out%d' $i
        done
        printf '\n\t@cat out* | sort | cksum\nout%%:\n\t@seq $* 500 | sort -r > $@; wc -l < $@ >> $@\n'
    } >Makefile
    make -s -j2
}

git_in_peace() {
    GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null git -c user.name=tester -c user.email=tester@example.org \
        -c init.defaultBranch=main -c gc.auto=0 -c pack.threads=2 "$@"
}

run_git() {
    local commit i
    export GIT_AUTHOR_DATE='2024-01-01T00:00:00Z' GIT_COMMITTER_DATE='2024-01-01T00:00:00Z'
    git_in_peace init -q work || return
    for ((commit = 0; commit < 8; commit++)); do
        for ((i = 0; i < 60 * scale; i++)); do
            mkdir -p "work/d$((i % 7))"
            seq $((i * commit)) $((i * commit + 200)) >"work/d$((i % 7))/file$i"
        done
        git_in_peace -C work add -A || return
        git_in_peace -C work commit -q -m "commit $commit" || return
    done
    git_in_peace clone -q --no-local work copy || return
    git_in_peace -C work gc -q --aggressive || return
    git_in_peace -C work fsck --full --strict || return
    git_in_peace -C copy log --stat --format='%H %s'
    git_in_peace -C copy diff HEAD~5 HEAD | cksum
    git_in_peace -C work cat-file --batch-all-objects --batch-check='%(objectname) %(objecttype)' | cksum
}

if needs gcc gcc; then
    in_effect gcc gcc --version
    compare gcc run_gcc file.o
fi
if needs g++ g++; then
    in_effect g++ "$(g++ -print-prog-name=cc1plus)" --version
    compare g++ run_gxx workload.o
fi
if needs make make; then
    in_effect make make --version
    compare make run_make
fi
if needs git git; then
    in_effect git git --version
    compare git run_git
fi
finish
