/*
 * fault_held_test.c - checked mode, and an access to a freed block while its thread holds a lock that the
 * report wants, as in a signal handler that interrupted malloc: the program dies of it, and waits for
 * nothing.
 *
 * suite: limit 60 s
 */
#include "check/records.h"
#include "support/child.h"
#include "support/target.h"
#include "support/test.h"

#include <signal.h>
#include <unistd.h>

#define BLOCK_BYTES ((size_t)100 * 1024) /* with guard pages, so that it is closed when it is freed */
#define WAITING_S   20u

static int touch(const struct hak_record *record, void *block) {
    (void)record;
    return *(const char *)launder(block) != 0;
}

static int touch_while_records_are_visited(void *block) {
    (void)alarm(WAITING_S);
    return hak_records_visit(touch, block);
}

static int run_held(void) {
    static struct child child;
    void *block = launder(hak_malloc(BLOCK_BYTES));
    CHECK(block != NULL);
    hak_free(block);
    child = (struct child){.function = touch_while_records_are_visited, .context = block};
    child_run(&child);
    if (child_signal(&child) != SIGSEGV) {
        child_report(&child);
        return 1;
    }
    check_heap();
    return 0;
}

static void an_access_with_a_lock_held_ends_the_program(void **state) {
    (void)state;
    assert_part_succeeds("held", "HAKMEM_CHECK=1");
}

int main(int argc, char **argv) {
    static const struct part parts[] = {{"held", run_held}};
    const struct part *part = part_asked_for(parts, COUNT_OF(parts), argc, argv);
    if (part != NULL) {
        return part->run();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_access_with_a_lock_held_ends_the_program),
    };
    return cmocka_run_group_tests_name("fault_held", tests, NULL, NULL);
}
