#!/bin/sh
# suite: limit 120 s
# A library locks what it has around each fork, while a thread that holds that lock allocates: hakmem's handler, which
# takes the heap's locks, has to come after the library's, though the library is initialised before the program is.
# shellcheck source=tests/process/lib.sh
. "$TEST_ROOT/tests/process/lib.sh" || exit 1

cat > "$dir/guarded.c" <<'C'
#include <pthread.h>
#include <stdatomic.h>
pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
atomic_bool fork_waits;
static void lock(void) {
    atomic_store(&fork_waits, 1);
    pthread_mutex_lock(&guard);
}
static void unlock(void) { pthread_mutex_unlock(&guard); }
__attribute__((constructor)) static void begin(void) { pthread_atfork(lock, unlock, unlock); }
C
cat > "$dir/main.c" <<'C'
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
extern pthread_mutex_t guard;
extern atomic_bool fork_waits;
static pthread_barrier_t held;
static void allocate(void) {
    for (size_t bytes = 1; bytes < (size_t)64 << 20; bytes += bytes / 2 + 1) {
        void *block = malloc(bytes);
        if (block == NULL) {
            _exit(3);
        }
        memset(block, 1, 1);
        free(block);
    }
}
static void *allocate_while_fork_waits(void *unused) {
    pthread_mutex_lock(&guard);
    pthread_barrier_wait(&held);
    while (!atomic_load(&fork_waits)) {
        usleep(1000);
    }
    allocate();
    pthread_mutex_unlock(&guard);
    return unused;
}
int main(void) {
    pthread_t thread;
    int status = 0;
    alarm(30);
    pthread_barrier_init(&held, NULL, 2);
    pthread_create(&thread, NULL, allocate_while_fork_waits, NULL);
    pthread_barrier_wait(&held);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(30);
        pthread_mutex_lock(&guard);
        allocate();
        _exit(0);
    }
    pthread_join(thread, NULL);
    return pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
}
C
$CC -shared -fPIC -o "$dir/libguarded.so" "$dir/guarded.c" -pthread &&
    $CC -Wl,-rpath,"$dir" -o "$dir/preloaded" "$dir/main.c" -L"$dir" -lguarded -pthread &&
    $CC -Wl,-rpath,"$dir" -Wl,-rpath,"$(dirname "$TEST_SO")" -o "$dir/linked" "$dir/main.c" -L"$dir" -lguarded \
        -Wl,--no-as-needed "$TEST_SO" -pthread || exit 1
ln -sf "$TEST_SO" "$dir/libhakmem.so.0"

"$dir/preloaded"
check "the program itself, on libc" $?
LD_PRELOAD=$TEST_SO "$dir/preloaded"
check "preloaded" $?
LD_LIBRARY_PATH=$dir "$dir/linked"
check "linked" $?
HAKMEM_CHECK=1 LD_PRELOAD=$TEST_SO "$dir/preloaded"
check "preloaded, in checked mode: options are read before other libraries begin" $?
HAKMEM_CHECK=1 LD_PRELOAD=$TEST_SO env | grep -q '^PATH='
check "preloaded, in checked mode: the program has its environment" $?
LD_PRELOAD=$TEST_SO HAKMEM_STATS=1 "$dir/preloaded" 2>"$dir/stats"
grep -q . "$dir/stats"
check "options are read" $?

close_suite
