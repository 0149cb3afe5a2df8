#!/bin/bash
# suite: limit 150 s
# The tests of the benchmarks and of their runner; their last line is the count.
cd "$TEST_ROOT" || exit 1
make -s bench-test
