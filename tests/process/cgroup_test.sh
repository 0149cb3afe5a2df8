#!/usr/bin/env bash
# cgroup_test.sh - in a memory cgroup a program that uses two thirds of the limit, in blocks of changing sizes, lives.
#
# suite: limit 120 s
# Makes a cgroup of its own and removes it: only with TEST_SYSTEM=1, where cgroups may be made. HAKMEM_RETAIN_MB=0,
# because by default up to 256 MB, more with many processors, of free memory are kept for a program that frees and soon
# needs again.
set -u

readonly limit_mib=96 used_mib=64
passed=0
failed=0
skipped=0

skip() {
    skipped=$((skipped + 1))
    echo "skipped: a memory cgroup: $1"
    finish
}

finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [[ $failed -eq 0 ]]
    exit
}

[[ ${TEST_SYSTEM:-} == 1 ]] || skip 'makes a cgroup: only with TEST_SYSTEM=1, as root'
if [[ -d /sys/fs/cgroup/memory ]]; then
    group=/sys/fs/cgroup/memory/hakmem-test.$$ limit=memory.limit_in_bytes
else
    group=/sys/fs/cgroup/hakmem-test.$$ limit=memory.max
fi
mkdir "$group" 2>/dev/null || skip "may not make $group"
trap 'rmdir "$group"' EXIT
{ echo $((limit_mib << 20)) >"$group/$limit"; } 2>/dev/null || skip "may not set $group/$limit"

# in_group MIB: the program inside the group; its swap is the system's, which tests should not rely on.
in_group() {
    # shellcheck disable=SC2016 # for the inner shell
    bash -c 'echo $$ >"$0/cgroup.procs" && HAKMEM_RETAIN_MB=0 LD_PRELOAD=$1 exec "$2" "$3"' "$group" "$TEST_SO" \
        "$TEST_PLAIN/process/within_limit" "$1" 2>&1
}

if [[ $(in_group $used_mib) == 'done' ]]; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    echo "FAILED: $used_mib MiB of blocks do not fit into $limit_mib MiB"
fi
# The limit is real: more than it allows is not given.
if [[ $(in_group $((limit_mib * 2))) == *'done'* ]]; then
    failed=$((failed + 1))
    echo 'FAILED: the limit does not limit'
else
    passed=$((passed + 1))
fi
finish
