#!/bin/sh
# suite: slow, limit 4000 s
# The long scenarios too, with weak swaps that fail without a cause.
exec "$TEST_ROOT/build/model/modelcheck" --deep --limit 2000
