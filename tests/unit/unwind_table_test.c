/*
 * unwind_table_test.c - what the tables of .eh_frame say, instruction by instruction: here the loader's
 * answer is a table that the test has written.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check/libc.h"
#include "check/unwind_table.h"
#include "support/test.h"

#include <string.h>

#if defined(__x86_64__) && defined(DLFO_STRUCT_HAS_EH_DBASE)

#define CODE_BYTES 64u
#define AT_END     CODE_BYTES /* a return address whose call is the last instruction */

/* A function's code, of which only the addresses matter, and its tables. */
static struct {
    uint8_t code[CODE_BYTES];
    struct {
        uint8_t version, encodings[3];
        int32_t frames, count, begin, description;
    } header;
    uint8_t records[256];
} image;

static uint8_t *end_of_records;

static int find_image(void *address, struct dl_find_object *found) {
    (void)address;
    found->dlfo_eh_frame = &image.header;
    return 0;
}

static void put(const void *bytes, size_t count) {
    memcpy(end_of_records, bytes, count);
    end_of_records += count;
}

static void put_32(uint32_t value) {
    put(&value, sizeof value);
}

/* Begins a record whose length end_record() knows. */
static uint8_t *begin_record(void) {
    uint8_t *start = end_of_records;
    put_32(0);
    return start;
}

static void end_record(uint8_t *start) {
    uint32_t length = (uint32_t)(end_of_records - start) - 4;
    memcpy(start, &length, sizeof length);
}

/* What functions have in common: the caller's stack pointer is 8 above, the return address below that. */
struct common {
    const char *letters; /* of the augmentation, with their data */
    const char *data;
    unsigned data_bytes;
    unsigned version;
};

static const struct common ordinary = {.letters = "zR", .data = "\x1B", .data_bytes = 1, .version = 1};

static void write_common(const struct common *common) {
    static const uint8_t aligns_and_register[] = {1, 0x78, 16};
    static const uint8_t instructions[] = {0x0C, 7, 8, 0x90, 1};
    uint8_t *start = begin_record();
    put_32(0);
    put(&(uint8_t){(uint8_t)common->version}, 1);
    put(common->letters, strlen(common->letters) + 1);
    put(aligns_and_register, sizeof aligns_and_register);
    put(&(uint8_t){(uint8_t)common->data_bytes}, 1);
    put(common->data, common->data_bytes);
    put(instructions, sizeof instructions);
    end_record(start);
}

/* The rule at an offset in the code of a function with these instructions. */
static struct hak_unwind_rule rule_at(const struct common *common, const char *instructions, size_t count,
                                      unsigned offset) {
    end_of_records = image.records;
    write_common(common);
    uint8_t *start = begin_record();
    put_32((uint32_t)(end_of_records - image.records));
    put_32((uint32_t)(image.code - end_of_records));
    put_32(CODE_BYTES);
    put(&(uint8_t){0}, 1);
    put(instructions, count);
    end_record(start);
    image.header.version = 1;
    memcpy(image.header.encodings, "\x1B\x03\x3B", 3);
    image.header.count = 1;
    image.header.begin = (int32_t)(image.code - (uint8_t *)&image.header);
    image.header.description = (int32_t)(start - (uint8_t *)&image.header);
    return hak_unwind_read_rule((uintptr_t)image.code + offset);
}

#define STACK(outer, base)                                                                                   \
    { .outer_words = (outer), .base_words = (base), .is_known = 1 }
#define BASE(outer, base)                                                                                    \
    { .outer_words = (outer), .base_words = (base), .is_from_base = 1, .is_known = 1 }
#define UNKNOWN                                                                                              \
    { .is_known = 0 }
#define CODE(text) .code = (text), .bytes = sizeof(text) - 1

static const struct {
    const char *code;
    size_t bytes;
    unsigned offset;
    struct hak_unwind_rule rule;
} cases[] = {
    {CODE(""), AT_END, STACK(1, 0)},
    {CODE("\x00\x00"), AT_END, STACK(1, 0)},
    {CODE("\x0E\x10\x86\x02"), AT_END, STACK(2, 2)},        /* push of the base pointer */
    {CODE("\x0E\x10\x86\x02\x0D\x06"), AT_END, BASE(2, 2)}, /* which is the frame's then */
    {CODE("\x0E\x10\x86\x02\x0C\x06\x20"), AT_END, BASE(4, 2)},
    {CODE("\x86\x03\xC6"), AT_END, STACK(1, 0)},     /* restored */
    {CODE("\x86\x03\x06\x06"), AT_END, STACK(1, 0)}, /* by the long form */
    {CODE("\x86\x03\x08\x06"), AT_END, STACK(1, 0)}, /* or as it was */
    {CODE("\x90\x03"), AT_END, UNKNOWN},             /* the return address lies elsewhere */
    {CODE("\x90\x03\xD0"), AT_END, STACK(1, 0)},
    {CODE("\x90\x03\x06\x10"), AT_END, STACK(1, 0)},
    {CODE("\x05\x06\x03"), AT_END, STACK(1, 3)},
    {CODE("\x11\x06\x03"), AT_END, STACK(1, 3)},
    {CODE("\x11\x06\x7D"), AT_END, UNKNOWN}, /* above the caller's stack pointer */
    {CODE("\x12\x07\x7D"), AT_END, STACK(3, 0)},
    {CODE("\x13\x7D"), AT_END, STACK(3, 0)},
    {CODE("\x0E\x80\x02"), AT_END, STACK(32, 0)},
    {CODE("\x0E\x0C"), AT_END, UNKNOWN},             /* no whole words */
    {CODE("\x0D\x03"), AT_END, UNKNOWN},             /* from another register */
    {CODE("\x0A\x0E\x20\x0B"), AT_END, STACK(1, 0)}, /* remembered, and as it was again */
    {CODE("\x0A\x0E\x20\x0A\x0E\x30\x0B\x0B"), AT_END, STACK(1, 0)},
    {CODE("\x0A\x0E\x20\x0A\x0E\x30\x0B"), AT_END, STACK(4, 0)},
    {CODE("\x0A\x0A\x0A\x0A\x0B"), AT_END, STACK(1, 0)},
    {CODE("\x0A\x0A\x0A\x0A\x0A"), AT_END, UNKNOWN},     /* too deep */
    {CODE("\x0B"), AT_END, UNKNOWN},                     /* nothing is remembered */
    {CODE("\x2E\x10"), AT_END, STACK(1, 0)},             /* bytes of arguments: no matter */
    {CODE("\x07\x03\x09\x03\x06"), AT_END, STACK(1, 0)}, /* of registers that do not matter */
    {CODE("\x07\x06"), AT_END, UNKNOWN},
    {CODE("\x07\x07"), AT_END, UNKNOWN},
    {CODE("\x07\x10"), AT_END, UNKNOWN},
    {CODE("\x09\x06\x03"), AT_END, UNKNOWN},
    {CODE("\x87\x02"), AT_END, UNKNOWN},
    {CODE("\x10\x03\x02\x50\x50\x0E\x10"), AT_END, STACK(2, 0)},
    {CODE("\x16\x03\x01\x50\x0E\x10"), AT_END, STACK(2, 0)},
    {CODE("\x10\x06\x01\x50"), AT_END, UNKNOWN},
    {CODE("\x10\x03\x70"), AT_END, UNKNOWN}, /* longer than the record */
    {CODE("\x2D"), AT_END, UNKNOWN},
    {CODE("\x41\x0E\x10"), 1, STACK(1, 0)}, /* the call ends where that begins to hold */
    {CODE("\x41\x0E\x10"), 2, STACK(2, 0)},
    {CODE("\x41\x0E\x10\x4A\x0E\x18"), 11, STACK(2, 0)},
    {CODE("\x41\x0E\x10\x4A\x0E\x18"), 12, STACK(3, 0)},
    {CODE("\x02\x0A\x0E\x10"), 10, STACK(1, 0)},
    {CODE("\x02\x0A\x0E\x10"), 11, STACK(2, 0)},
    {CODE("\x03\x0A\x00\x0E\x10"), 10, STACK(1, 0)},
    {CODE("\x03\x0A\x00\x0E\x10"), 11, STACK(2, 0)},
    {CODE("\x04\x0A\x00\x00\x00\x0E\x10"), 10, STACK(1, 0)},
    {CODE("\x04\x0A\x00\x00\x00\x0E\x10"), 11, STACK(2, 0)},
    {CODE("\x0E\x10"), 1, STACK(2, 0)},
    {CODE(""), AT_END + 1, UNKNOWN}, /* behind the function */
};

static void assert_rule(unsigned idx, struct hak_unwind_rule rule, struct hak_unwind_rule expected) {
    bool is_same =
        rule.is_known == expected.is_known && (!rule.is_known || memcmp(&rule, &expected, sizeof rule) == 0);
    if (!is_same) {
        fail_msg("case %u: %u words from %u, base %u, known %u", idx, rule.outer_words, rule.is_from_base,
                 rule.base_words, rule.is_known);
    }
}

static void each_instruction_is_carried_out(void **state) {
    (void)state;
    for (unsigned i = 0; i < COUNT_OF(cases); i++) {
        assert_rule(i, rule_at(&ordinary, cases[i].code, cases[i].bytes, cases[i].offset), cases[i].rule);
    }
}

/* Personality and language data stand before the encoding of addresses, in several lengths. */
static void augmentations_are_read_or_refused(void **state) {
    (void)state;
    static const struct {
        struct common common;
        bool is_known;
    } kinds[] = {
        {{"zPLR", "\x9B\x01\x02\x03\x04\x1B\x1B", 7, 1}, true},
        {{"zPLR", "\x03\x01\x02\x03\x04\x1B\x1B", 7, 1}, true},
        {{"zPLR", "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x1B\x1B", 11, 1}, true},
        {{"zRL", "\x1B\x1B", 2, 3}, true},
        {{"zR", "\x00", 1, 1}, false},  /* absolute addresses */
        {{"zR", "\x1B", 1, 2}, false},  /* a version that there is not */
        {{"zRS", "\x1B", 1, 1}, false}, /* the frame of a signal */
        {{"zRX", "\x1B", 1, 1}, false},
        {{"X", "", 0, 1}, false},
    };
    for (unsigned i = 0; i < COUNT_OF(kinds); i++) {
        assert_rule(i, rule_at(&kinds[i].common, "\x0E\x10", 2, AT_END),
                    (struct hak_unwind_rule){.outer_words = 2, .is_known = kinds[i].is_known});
    }
}

static void use_image(void) {
    hak_check_libc.find_object = find_image;
}

#else

static void each_instruction_is_carried_out(void **state) {
    (void)state;
    SKIP_BECAUSE("no tables are read here");
}

static void augmentations_are_read_or_refused(void **state) {
    (void)state;
    SKIP_BECAUSE("no tables are read here");
}

static void use_image(void) {
}

#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_instruction_is_carried_out),
        cmocka_unit_test(augmentations_are_read_or_refused),
    };
    use_image();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
