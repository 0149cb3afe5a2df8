#!/bin/sh
# suite: slow, limit 1800 s
# The long scenarios too, with weak swaps that fail without a cause.
exec "$TEST_ROOT/build/model/modelcheck" --deep --limit 600
