/*
 * records_test.c - what checked mode knows of blocks: as many records as blocks need, however many addresses
 * there were in time.
 *
 * suite: limit 60 s
 */
#include "support/refused_mmap.h"

#include "check/records.h"
#include "support/child.h"
#include "support/test.h"

#define STEP_BYTES 16u
#define LIVE       2000u /* blocks that stay, and as many that were released last */
#define GONE       400000u

static struct hak_record record_at(uintptr_t address) {
    return (struct hak_record){
        .address = address, .bytes = 1, .kind = HAK_RECORD_INLINE, .state = HAK_RECORD_LIVE};
}

static void enter(uintptr_t address) {
    struct hak_record record = record_at(address);
    CHECK(hak_records_enter(&record));
}

static void enter_and_release(uintptr_t address) {
    struct hak_record record;
    enter(address);
    CHECK(hak_record_live_to_freeing((void *)address, NULL, 0, &record));
    hak_record_freeing_to_quarantined((void *)address);
    hak_record_quarantined_to_released((void *)address);
}

static bool is_in_state(uintptr_t address, enum hak_record_state state) {
    struct hak_record record;
    return hak_records_get((void *)address, &record) && record.state == state;
}

static int add_bytes(void *start, size_t bytes, void *sum) {
    (void)start;
    *(size_t *)sum += bytes;
    return 0;
}

static size_t tables_bytes(void) {
    size_t bytes = 0;
    hak_records_visit_mapped(add_bytes, &bytes);
    return bytes;
}

/* Large blocks of many sizes hardly ever have an address twice. */
static int release_ever_new_addresses(void *unused) {
    uintptr_t address = (uintptr_t)1 << 32;
    (void)unused;
    hak_records_prepare();
    for (unsigned i = 0; i < LIVE; i++) {
        enter(address + i * STEP_BYTES);
    }
    address += LIVE * STEP_BYTES;
    for (unsigned i = 0; i < GONE; i++) {
        enter_and_release(address + i * STEP_BYTES);
        if (i % (GONE / 100) == 0) {
            CHECK(is_in_state((uintptr_t)1 << 32, HAK_RECORD_LIVE));
        }
    }
    for (unsigned i = 1; i <= LIVE; i++) {
        CHECK(is_in_state(address - i * STEP_BYTES, HAK_RECORD_LIVE));
        CHECK(is_in_state(address + (GONE - i) * STEP_BYTES, HAK_RECORD_RELEASED));
    }
    CHECK(tables_bytes() <= (size_t)8 * 2 * LIVE * sizeof(struct hak_record) + (size_t)1024 * 1024);
    return 0;
}

static void blocks_that_are_gone_make_room(void **state) {
    (void)state;
    assert_function_succeeds(release_ever_new_addresses);
}

/* What is alive is never given up, nor what waits in the quarantine. */
static int keep_what_is_needed(void *unused) {
    uintptr_t address = (uintptr_t)1 << 32;
    struct hak_record record;
    (void)unused;
    hak_records_prepare();
    for (unsigned i = 0; i < GONE / 2; i++) {
        uintptr_t live = address + (size_t)2 * i * STEP_BYTES;
        enter(live);
        enter(live + STEP_BYTES);
        CHECK(hak_record_live_to_freeing((void *)(live + STEP_BYTES), NULL, 0, &record));
        hak_record_freeing_to_quarantined((void *)(live + STEP_BYTES));
    }
    for (unsigned i = 0; i < GONE / 2; i++) {
        uintptr_t live = address + (size_t)2 * i * STEP_BYTES;
        CHECK(is_in_state(live, HAK_RECORD_LIVE) && is_in_state(live + STEP_BYTES, HAK_RECORD_QUARANTINED));
    }
    return 0;
}

static void blocks_that_are_not_stay(void **state) {
    (void)state;
    assert_function_succeeds(keep_what_is_needed);
}

/* No table can be made anew: what is gone makes room in the ones that are there, whatever lies between. */
static int go_on_without_memory(void *unused) {
    uintptr_t address = (uintptr_t)1 << 32;
    (void)unused;
    hak_records_prepare();
    for (unsigned i = 0; i < LIVE; i++) {
        enter(address + (size_t)2 * i * STEP_BYTES);
        enter_and_release(address + ((size_t)2 * i + 1) * STEP_BYTES);
    }
    is_mapping_refused = true;
    for (unsigned i = 2 * LIVE; i < GONE; i++) {
        enter_and_release(address + i * STEP_BYTES);
        CHECK(is_in_state(address + i * STEP_BYTES, HAK_RECORD_RELEASED));
    }
    for (unsigned i = 0; i < LIVE; i++) {
        CHECK(is_in_state(address + (size_t)2 * i * STEP_BYTES, HAK_RECORD_LIVE));
    }
    for (unsigned i = 2 * LIVE; i < GONE; i++) { /* until nothing is left to be forgotten */
        struct hak_record record = record_at(address + i * STEP_BYTES);
        if (!hak_records_enter(&record)) {
            return 0;
        }
    }
    return 1;
}

static void without_memory_what_is_gone_is_forgotten(void **state) {
    (void)state;
    assert_function_succeeds(go_on_without_memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_that_are_gone_make_room),
        cmocka_unit_test(blocks_that_are_not_stay),
        cmocka_unit_test(without_memory_what_is_gone_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
