#!/usr/bin/env bash
# databases_test.sh - sqlite3, a redis server and a postgres server answer the same on hakmem as on libc's malloc.
#
# suite: limit 180 s, room 200 MiB
# Servers listen on sockets in the suite's folder alone and are stopped by their own process id.
# shellcheck source=tests/programs/lib.sh
. "$(dirname "$0")/lib.sh"

run_sqlite() {
    local i
    for ((i = 0; i < scale; i++)); do
        rm -f db db-wal db-shm
        sqlite3 db <"$data/workload.sql" || return
    done
}

# check_maps PID: on the side that is preloaded, the server itself is, not its clients alone.
check_maps() {
    # shellcheck disable=SC2031 # compare sets it for the side
    if [[ -n ${LD_PRELOAD:-} ]] && ! grep -q "${LD_PRELOAD##*/}" "/proc/$1/maps"; then
        echo 'the server is not preloaded'
    fi
}

# Commands with answers that do not depend on time.
redis_commands() {
    local i
    for ((i = 0; i < 3000 * scale; i++)); do
        echo "SET key$((i * 7919 % 5003)) $(printf 'v%.0s' {1..30})$i"
        echo "LPUSH list$((i % 17)) element$i"
        echo "HSET hash$((i % 29)) field$((i % 301)) value$i"
        echo "ZADD sorted $((i * 31 % 1009)) member$((i % 700))"
        if ((i % 5 == 0)); then
            echo "DEL key$((i % 5003))"
        fi
    done
    echo 'DBSIZE'
    echo 'LRANGE list3 0 20'
    echo 'ZRANGE sorted 0 30 WITHSCORES'
    echo 'SORT list5 ALPHA LIMIT 0 10'
    echo 'HGET hash7 field7'
}

run_redis() {
    local pid status
    start_redis
    redis_commands | redis-cli -s "$PWD/socket"
    redis-benchmark -q -s "$PWD/socket" -n $((10000 * scale)) -c 20 -P 4 -t set,get,lpush,lrange_100,mset >benchmark &&
        redis-cli -s "$PWD/socket" BGREWRITEAOF >/dev/null
    status=$?
    check_maps "$pid"
    kill "$pid"
    wait "$pid" || status=$?
    return $status
}

postgres_folder=$(dirname "$(find /usr/lib/postgresql /usr/bin /usr/local -name initdb -type f 2>/dev/null | sort | tail -n 1)")

# as_postgres COMMAND...: the server refuses to run as root.
as_postgres() {
    if [[ $(id -u) -eq 0 ]]; then
        setpriv --reuid=postgres --regid=postgres --clear-groups -- "$@"
    else
        "$@"
    fi
}

run_postgres() {
    local pid job status folder=$PWD/cluster
    mkdir cluster
    if [[ $(id -u) -eq 0 ]]; then
        chown postgres cluster
    fi
    cd cluster || return
    export PGHOST=$folder PGDATABASE=postgres PGUSER=tester HOME=$folder
    as_postgres "$postgres_folder/initdb" -D db -U tester -A trust --no-sync -E UTF8 --locale=C >log 2>&1 || return
    as_postgres "$postgres_folder/postgres" -D db -c listen_addresses= -c unix_socket_directories="$folder" -c fsync=off \
        -c max_parallel_workers_per_gather=2 >server.log 2>&1 &
    job=$!
    for _ in {1..1200}; do
        as_postgres psql -Atqc 'select 1' >/dev/null 2>&1 && break
        sleep 0.05
    done
    pid=$(sed -n 1p db/postmaster.pid) || return
    trap 'kill -INT "$pid" 2>/dev/null' EXIT # of this side's subshell
    as_postgres "$postgres_folder/pgbench" -i -q -s 1 >>log 2>&1 &&
        as_postgres "$postgres_folder/pgbench" -n -c 4 -j 2 -t $((150 * scale)) --random-seed=42 >>log 2>&1
    status=$?
    as_postgres psql -At <<'SQL'
select count(*), sum(abalance), max(abalance) from pgbench_accounts;
select count(*), sum(delta) from pgbench_history;
select tid, tbalance from pgbench_tellers order by tid;
create table t as select i, md5(i::text) h from generate_series(1, 100000) i;
create index on t (h);
select count(*), min(a.h), max(b.h) from t a join t b on a.h = b.h where a.i % 3 = 0;
select jsonb_object_agg(i, h) ->> '77' from t where i < 2000;
SQL
    check_maps "$pid"
    kill -INT "$pid"
    wait "$job" || status=$?
    return $status
}

# The postgres user has to reach both the library and the folders.
readable_by_postgres() {
    [[ $(id -u) -eq 0 ]] || return 0
    id postgres >/dev/null 2>&1 && command -v setpriv >/dev/null || return 1
    TMPDIR=$(mktemp -d /tmp/hakmem-postgres-XXXXXX)
    trap 'rm -rf "$TMPDIR"' EXIT
    chmod 755 "$TMPDIR"
    cp "$TEST_SO" "$TMPDIR/" && TEST_SO=$TMPDIR/${TEST_SO##*/}
}

if needs sqlite3 sqlite3; then
    in_effect sqlite3 sqlite3 :memory: 'select 1'
    compare sqlite3 run_sqlite
fi
if needs redis redis-server redis-cli redis-benchmark; then
    in_effect redis redis-server --version
    compare redis run_redis
fi
if needs postgres "$postgres_folder/initdb" "$postgres_folder/pgbench" psql; then
    if ! id -un >/dev/null 2>&1; then
        skip postgres 'initdb needs a user with a name'
    elif readable_by_postgres; then
        compare postgres run_postgres
    else
        skip postgres 'root, but no user postgres or no setpriv'
    fi
fi
finish
