#!/bin/bash
# What the build tests share: sourced, not run. Counts, and a scratch tree that `make` can be tried on.

set -u
if [ -z "${TEST_ROOT:-}" ]; then # started by hand
    TEST_ROOT=$(cd "$(dirname "$0")/../.." && pwd)
    TMPDIR=$(mktemp -d)
    trap 'rm -rf "$TMPDIR"' EXIT
fi
# shellcheck source=tests/support/counts.sh
. "$TEST_ROOT/tests/support/counts.sh"
CC=${CC:-gcc}
CXX=${CXX:-g++}
# Options of the make that runs the tests are none of the makes that they run.
unset MAKEFLAGS MFLAGS NATIVE WERROR V CFLAGS CPPFLAGS LDFLAGS LTO DESTDIR PREFIX LIBDIR INCLUDEDIR

# expect NAME COMMAND...: the command succeeds; its output is shown when it does not.
expect() {
    local name=$1
    shift
    if "$@" >"$TMPDIR/output" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name: $*"
        cat "$TMPDIR/output"
    fi
}

# expect_not NAME COMMAND...: the command fails.
expect_not() {
    local name=$1
    shift
    expect "$name" fails "$@"
}
fails() {
    ! "$@"
}

skip() {
    skipped=$((skipped + 1))
    echo "skipped: $1: $2"
}

# copy_sources DIRECTORY: what `make` and `make install` need, and nothing that was built.
copy_sources() {
    mkdir -p "$1/core"
    cp "$TEST_ROOT/Makefile" "$1/"
    cp -r "$TEST_ROOT/include" "$1/"
    cp -r "$TEST_ROOT"/core/*/ "$TEST_ROOT/core/layout.ld" "$1/core/"
}

# copy_tests DIRECTORY: beside the sources, what the tests and benchmarks are built from.
copy_tests() {
    tar -C "$TEST_ROOT" --exclude=bench/out -cf - tests bench | tar -C "$1" -xf -
}
