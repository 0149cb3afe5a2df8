#!/usr/bin/env bash
# interpreters_test.sh - python3, perl, bash, jq, vim and node print the same on hakmem as on libc's malloc.
#
# suite: limit 150 s, flavours release debug
# shellcheck source=tests/programs/lib.sh
. "$(dirname "$0")/lib.sh"

run_python() {
    PYTHONHASHSEED=0 python3 "$data/workload.py" "$scale"
}

run_perl() {
    PERL_HASH_SEED=0 perl "$data/workload.pl" "$scale"
}

run_bash() {
    bash "$data/workload.bash" "$scale"
}

run_jq() {
    seq $((20000 * scale)) |
        jq -cs 'map({n: ., s: (. * 7919 % 1009 | tostring), l: [range(. % 7)]}) | group_by(.s) |
            map({key: .[0].s, value: (map(.n) | add), lists: (map(.l | length) | add)}) | .[:300]'
}

run_vim() {
    seq 3000 >text
    vim -es -u NONE -i NONE -c 'set nomore' -c '%s/\(\d\)\(\d\)/\2-\1/g' -c 'g/7/normal Aseven' -c 'sort! n' \
        -c 'normal ggyG20p' -c 'wq!' text
    cksum text
}

run_node() {
    node "$data/workload.js" "$scale"
}

if needs python3 python3; then
    in_effect python3 python3 -c 'print(1)'
    compare python3 run_python
fi
if needs perl perl; then
    in_effect perl perl -e 'print 1'
    compare perl run_perl
fi
in_effect bash bash -c 'echo 1'
compare bash run_bash
if needs jq jq; then
    in_effect jq jq -n 1
    compare jq run_jq
fi
if needs vim vim; then
    in_effect vim vim --version
    compare vim run_vim text
fi
if needs node node; then
    in_effect node node -e 1
    compare node run_node
fi
finish
