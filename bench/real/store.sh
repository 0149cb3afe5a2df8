#!/bin/sh
# A redis server without disk, on a socket of its own; half a minute's load in a second; then it is told to stop.
set -eu
folder=$(mktemp -d)
server=
trap 'test -z "$server" || kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
redis-server --port 0 --unixsocket "$folder/socket" --save '' --appendonly no --dir "$folder" --logfile "$folder/log" &
server=$!
while [ ! -S "$folder/socket" ]; do
    kill -0 $server
    sleep 0.01
done
redis-benchmark -s "$folder/socket" -q -n 40000 -r 20000 -d 200 -P 16 -c 10 -t set,get,lpush,sadd,hset >/dev/null
keys=$(redis-cli -s "$folder/socket" dbsize) # about 17300, by the load's random keys
test "$keys" -gt 15000
echo filled
redis-cli -s "$folder/socket" shutdown nosave || true
wait $server
server=
