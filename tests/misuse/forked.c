/*
 * forked.c - faults in a forked child, with blocks that it inherits.
 *
 * The child's line is the one that counts; the parent then ends as the child did.
 */
#include "fault.h"

#include <semaphore.h>
#include <sys/wait.h>

static size_t block_bytes; /* of the case */
static void *block;
static size_t room;

static void in_a_child(void (*commit)(void)) {
    pid_t child = fork();
    if (child == 0) {
        fault_limit_time();
        commit();
        int status = fault_survived();
        fault_aftermath(block_bytes);
        _exit(status);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    _exit(WEXITSTATUS(status));
}

static void free_it(void) {
    expect("free", "double free of", block, room);
    free(launder(block));
}

static void realloc_it(void) {
    expect("realloc", "use of freed block", block, room);
    (void)!realloc(launder(block), block_bytes * 2);
}

static void measure_it(void) {
    expect("malloc_usable_size", "use of freed block", block, room);
    (void)!malloc_usable_size(launder(block));
}

/* The first free is legal. */
static void free_it_twice(void) {
    free(launder(block));
    free_it();
}

static void free_inside_it(void) {
    expect("free", "invalid pointer", (char *)block + 8, room);
    expect("free", "invalid pointer", (char *)block + 8, 0);
    free(launder((char *)block + 8));
}

static void *free_quietly(void *unused) {
    free(launder(block));
    return unused;
}

static void *allocate(void *unused) {
    block = must(malloc(block_bytes));
    room = malloc_usable_size(block);
    return unused;
}

static void freed_before(void) {
    free(launder(block));
    in_a_child(free_it);
}

static void realloc_of_freed_before(void) {
    free(launder(block));
    in_a_child(realloc_it);
}

static void usable_size_of_freed_before(void) {
    free(launder(block));
    in_a_child(measure_it);
}

static void freed_before_by_a_thread_that_ended(void) {
    on_thread(free_quietly, NULL);
    in_a_child(free_it);
}

static void freed_twice_in_the_child(void) {
    in_a_child(free_it_twice);
}

static void inside_an_inherited_block(void) {
    in_a_child(free_inside_it);
}

/* Another thread that has heap and caches, and does not exist in the child. */
struct other_thread {
    void *(*body)(void *);
    sem_t is_done, may_end;
};

static void *live_on(void *argument) {
    struct other_thread *other = argument;
    (void)other->body(NULL);
    sem_post(&other->is_done);
    sem_wait(&other->may_end);
    return NULL;
}

static void beside_another_thread(void *(*body)(void *), void (*commit)(void)) {
    struct other_thread other = {.body = body};
    pthread_t thread;
    sem_init(&other.is_done, 0, 0);
    sem_init(&other.may_end, 0, 0);
    if (pthread_create(&thread, NULL, live_on, &other) != 0) {
        _exit(5);
    }
    sem_wait(&other.is_done);
    in_a_child(commit);
}

static void freed_before_by_a_thread_that_lives(void) {
    beside_another_thread(free_quietly, free_it);
}

static void freed_twice_of_another_threads_block(void) {
    beside_another_thread(allocate, free_it_twice);
}

static void inside_another_threads_block(void) {
    beside_another_thread(allocate, free_inside_it);
}

static const struct fault_case cases[] = {
    {"freed_before", freed_before},
    {"realloc_of_freed_before", realloc_of_freed_before},
    {"usable_size_of_freed_before", usable_size_of_freed_before},
    {"freed_before_by_a_thread_that_ended", freed_before_by_a_thread_that_ended},
    {"freed_before_by_a_thread_that_lives", freed_before_by_a_thread_that_lives},
    {"freed_twice_in_the_child", freed_twice_in_the_child},
    {"freed_twice_of_another_threads_block", freed_twice_of_another_threads_block},
    {"inside_an_inherited_block", inside_an_inherited_block},
    {"inside_another_threads_block", inside_another_threads_block},
};

static void prepare(size_t bytes) {
    block_bytes = bytes;
    (void)allocate(NULL);
}

int main(int argc, char **argv) {
    return fault_main(argc, argv, "_", cases, COUNT_OF(cases), prepare);
}
