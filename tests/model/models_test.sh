#!/bin/sh
# suite: limit 300 s
# Every quick scenario, all of its executions: see README.md.
exec "$TEST_ROOT/build/model/modelcheck"
