/*
 * perturb_test.c - mallopt(M_PERTURB) reaches threads that were there before it, large blocks too.
 */
#include "support/child.h"
#include "support/target.h"
#include "support/test.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LARGE_BYTES 100000u

static pthread_barrier_t barrier;

static void *free_after_it(void *unused) {
    void *small = malloc(100); /* the thread has a heap */
    unsigned char *block = malloc(LARGE_BYTES);
    CHECK(small != NULL && block != NULL);
    memset(block, 1, LARGE_BYTES);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* between them the option is set */
    unsigned char *freed = launder(block);
    free(block);
    CHECK(freed[LARGE_BYTES / 2] == 0xA5); /* read after free: that is what is tested */
    free(small);
    return unused;
}

static int perturb_another_thread(void *context) {
    pthread_t thread;
    (void)context;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, free_after_it, NULL) == 0);
    pthread_barrier_wait(&barrier);
    CHECK(mallopt(M_PERTURB, 0xA5) == 1);
    pthread_barrier_wait(&barrier);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}

static void a_thread_that_was_there_before_fills_what_it_frees(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_function_succeeds(perturb_another_thread);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_thread_that_was_there_before_fills_what_it_frees)};
    return cmocka_run_group_tests_name("perturb", tests, NULL, heap_is_sound);
}
