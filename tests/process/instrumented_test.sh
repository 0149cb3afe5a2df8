#!/usr/bin/env bash
# instrumented_test.sh - programs with functions of their own in front of libc's that are not ready when libraries start, as
# a sanitizer's in the program are; and programs that the loader tells an auditing module about.
#
# suite: limit 120 s, flavours release debug
# shellcheck source=tests/process/lib.sh
. "$TEST_ROOT/tests/process/lib.sh" || exit 1

cat >"$dir/program.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    char *text = strdup("well");
    for (int i = 0; i < 1000; i++) {
        text = realloc(text, 5 + i * 50);
    }
    puts(text);
    free(text);
    return 0;
}
C

# Under each mode the program ends by itself and says what it has to say.
runs_well() { # KIND COMMAND...
    local kind=$1 setting said
    shift
    for setting in HAKMEM_CHECK=0 HAKMEM_CHECK=1 HAKMEM_GUARD_SAMPLE=1 HAKMEM_STATS=1; do
        said=$(env HAKMEM_CHECK=0 "$setting" timeout 20 "$@" 2>"$dir/err")
        check_same "$kind, $setting" '0 well' "$? $said"
    done
}

# The runtime of the compiler that is to be had, in the program itself.
for options in '-fsanitize=thread -static-libtsan' '-fsanitize=leak -static-liblsan' '-fsanitize=leak'; do
    # shellcheck disable=SC2086 # options are words
    if $CC $options "$dir/program.c" -o "$dir/program" 2>"$dir/err" && "$dir/program" >/dev/null 2>&1; then
        runs_well "$options" env LSAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$TEST_SO" "$dir/program"
    else
        skipped=$((skipped + 1))
        printf 'skipped: %s: no such runtime here\n' "$options"
    fi
done

cat >"$dir/audit.c" <<'C'
#include <link.h>
unsigned la_version(unsigned version) {
    return version;
}
C
if $CC -shared -fPIC "$dir/audit.c" -o "$dir/audit.so" 2>"$dir/err"; then
    runs_well 'audited, with a locale' \
        env LC_ALL=C.UTF-8 LD_AUDIT="$dir/audit.so" LD_PRELOAD="$TEST_SO" /usr/bin/printf 'well\n'
else
    skipped=$((skipped + 1))
    echo 'skipped: audited: no auditing here'
fi

[[ $passed -gt 0 ]] || failed=1
close_suite
