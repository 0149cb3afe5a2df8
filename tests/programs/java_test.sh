#!/usr/bin/env bash
# java_test.sh - a Java program prints the same on hakmem as on libc's malloc; its JIT and GC threads allocate too.
#
# suite: limit 120 s
# shellcheck source=tests/programs/lib.sh
. "$(dirname "$0")/lib.sh"

run_java() {
    java -cp "$TMPDIR" Workload "$scale"
}

run_version() {
    java -version 2>&1
}

if needs java java; then
    in_effect java java -version
    compare java-version run_version
    if needs java-program javac && javac -d "$TMPDIR" "$data/Workload.java"; then
        compare java-program run_java
    fi
fi
finish
