#!/bin/sh
# suite: slow, limit 900 s
# Each acquire and each release made relaxed: a scenario fails, or redundant.txt says why not. See README.md.
exec "$TEST_ROOT/tests/model/weaken.py" --check
