#!/usr/bin/env bash
# other_malloc_test.sh - checked mode and guard sampling in a program whose own malloc stands before hakmem's: it is not
# called before main(), nor again from behind itself, and the user is told. What it hands on is checked as ever.
#
# suite: limit 60 s, flavours release debug
# shellcheck source=tests/process/lib.sh
. "$TEST_ROOT/tests/process/lib.sh" || exit 1
said=
readonly told="another malloc stands before hakmem's; what it does not hand on is not seen"

# run KIND SETTING [ARGUMENT]: what the program ended with and wrote, in $ended and $said
run() {
    said=$(env "$2" TEST_MALLOC="$1" LD_PRELOAD="$TEST_SO" "$TEST_PLAIN/process/other_malloc" ${3:+"$3"} 2>&1)
    ended=$?
}

export HAKMEM_CHECK=0
for kind in own forwards; do
    for setting in HAKMEM_CHECK=1 HAKMEM_GUARD_SAMPLE=1 HAKMEM_GUARD_SAMPLE=10000; do
        run "$kind" "$setting"
        check_same "$kind, $setting" "0 hakmem: ${setting%=*}: $told"$'\n'well "$ended $said"
    done
    run "$kind" HAKMEM_CHECK=0
    check_same "$kind, no mode" '0 well' "$ended $said"
done
for setting in HAKMEM_CHECK=1 HAKMEM_GUARD_SAMPLE=1; do
    run forwards "$setting" twice
    check_same "a double free under $setting ends the program" 134 "$ended"
    [[ $said == *$'\n''hakmem: free(): double free of 0x'*', 100-byte block'$'\n'* ]]
    check_same "a double free under $setting is named" 0 $?
done
# The tables of this processor alone say who called without libc's help.
if [[ $(uname -m) == x86_64 ]]; then
    run forwards HAKMEM_CHECK=1 twice
    [[ $said == *'allocated by'*other_malloc+*'freed by'*other_malloc+* ]]
    check_same 'stacks are found without libc' 0 $?
fi

# A program at a fixed address has an entry of its own for each function whose address it takes.
cat >"$dir/fixed.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
void *(*volatile allocate)(size_t);
void (*volatile give_back)(void *);
int main(void) {
    allocate = malloc;
    give_back = free;
    give_back(allocate(100));
    return puts("well") < 0;
}
C
if "$CC" -fno-pie -no-pie -fno-builtin -o "$dir/fixed" "$dir/fixed.c"; then
    for setting in HAKMEM_CHECK=1 HAKMEM_GUARD_SAMPLE=1; do
        said=$(env "$setting" LD_PRELOAD="$TEST_SO" "$dir/fixed" 2>&1)
        check_same "a program at a fixed address, $setting" '0 well' "$? $said"
    done
fi
[[ $passed -gt 0 ]] || failed=1
close_suite
