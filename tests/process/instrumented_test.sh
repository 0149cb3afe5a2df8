#!/usr/bin/env bash
# instrumented_test.sh - programs with functions of their own in front of libc's that are not ready when libraries start, as
# a sanitizer's in the program are; and programs that the loader tells an auditing module about.
#
# suite: limit 120 s, flavours release debug
set -u
passed=0
failed=0
skipped=0

check() { # NAME WANTED GOT
    if [[ $2 == "$3" ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s\n  wanted: %s\n  got: %s\n' "$1" "$2" "$3"
    fi
}

cat >"$TMPDIR/program.c" <<'C'
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
        said=$(env HAKMEM_CHECK=0 "$setting" timeout 20 "$@" 2>"$TMPDIR/err")
        check "$kind, $setting" '0 well' "$? $said"
    done
}

# The runtime of the compiler that is to be had, in the program itself.
for options in '-fsanitize=thread -static-libtsan' '-fsanitize=leak -static-liblsan' '-fsanitize=leak'; do
    # shellcheck disable=SC2086 # options are words
    if ${CC:-cc} $options "$TMPDIR/program.c" -o "$TMPDIR/program" 2>"$TMPDIR/err" && "$TMPDIR/program" >/dev/null 2>&1; then
        runs_well "$options" env LSAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$TEST_SO" "$TMPDIR/program"
    else
        skipped=$((skipped + 1))
        printf 'skipped: %s: no such runtime here\n' "$options"
    fi
done

cat >"$TMPDIR/audit.c" <<'C'
#include <link.h>
unsigned la_version(unsigned version) {
    return version;
}
C
if ${CC:-cc} -shared -fPIC "$TMPDIR/audit.c" -o "$TMPDIR/audit.so" 2>"$TMPDIR/err"; then
    runs_well 'audited, with a locale' \
        env LC_ALL=C.UTF-8 LD_AUDIT="$TMPDIR/audit.so" LD_PRELOAD="$TEST_SO" /usr/bin/printf 'well\n'
else
    skipped=$((skipped + 1))
    echo 'skipped: audited: no auditing here'
fi

echo "$passed passed, $failed failed, $skipped skipped"
[[ $failed -eq 0 && $passed -gt 0 ]]
