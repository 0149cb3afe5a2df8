#!/bin/sh
# suite: limit 60 s, flavours release
# A program that runs with privileges its user does not have (AT_SECURE) takes no option from the environment.
# shellcheck source=tests/process/lib.sh
. "$TEST_ROOT/tests/process/lib.sh" || exit 1
nobody=65534

skip_all() {
    echo "skipped: options under AT_SECURE: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}

[ "$(id -u)" = 0 ] || skip_all "only root can make a program setuid"
command -v setpriv > /dev/null || skip_all "there is no setpriv"

cat > "$dir/main.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
int main(void) {
    free(malloc(100));
    printf("%lu\n", getauxval(AT_SECURE));
    return 0;
}
C
# The loader ignores LD_PRELOAD here, so the program is linked with the archive.
$CC -fno-builtin -fno-lto -o "$dir/plain" "$dir/main.c" libhakmem.a -pthread -ldl || exit 1
cp "$dir/plain" "$dir/setuid" && chmod 4755 "$dir/setuid" && chmod 755 "$dir" || exit 1

as_nobody() { # PROGRAM: what it prints, and in $dir/err what it says
    env HAKMEM_STATS=1 HAKMEM_NO_SUCH=1 HAKMEM_TINY_FRONT_DUMP="$dir/dump" \
        setpriv --reuid="$nobody" --regid="$nobody" --clear-groups "$1" 2> "$dir/err"
}

[ "$(as_nobody "$dir/plain")" = 0 ]
check "the program runs without privileges" $?
grep -q '^hakmem: heap of process ' "$dir/err" && grep -q '^hakmem: unknown option HAKMEM_NO_SUCH' "$dir/err"
check "without privileges the options count" $?
rm -f "$dir/dump"
[ "$(as_nobody "$dir/setuid")" = 1 ] || skip_all "$dir does not honour the setuid bit"
[ ! -s "$dir/err" ]
check "with privileges nothing is said" $?
[ ! -e "$dir/dump" ]
check "with privileges no file is written" $?

close_suite
