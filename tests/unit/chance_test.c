/*
 * chance_test.c - the generator behind HAKMEM_RANDOMIZE, and the mappings that keep metadata apart from what
 * a program can overrun.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "base/chacha.h"
#include "hakmem.h"
#include "meta/arena.h"
#include "meta/registry.h"
#include "os/os.h"
#include "slab/chance.h"
#include "support/target.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DRAWS 512u

/* Key and stream of zeros, eight rounds: the vector that implementations of the cipher agree on. */
static void a_block_of_the_cipher_is_the_known_one(void **state) {
    (void)state;
    static const unsigned char expected[] = {
        0x3e, 0x00, 0xef, 0x2f, 0x89, 0x5f, 0x40, 0xd6, 0x7f, 0x5b, 0xb8, 0xe8, 0x1f, 0x09, 0xa5, 0xa1,
        0x2c, 0x84, 0x0e, 0xc3, 0xce, 0x9a, 0x7f, 0x3b, 0x18, 0x1b, 0xe1, 0x88, 0xef, 0x71, 0x1a, 0x1e,
        0x98, 0x4c, 0xe1, 0x72, 0xb9, 0x21, 0x6f, 0x41, 0x9f, 0x44, 0x53, 0x67, 0x45, 0x6d, 0x56, 0x19,
        0x31, 0x4a, 0x42, 0xa3, 0xda, 0x86, 0xb0, 0x01, 0x38, 0x7b, 0xfd, 0xb8, 0x0e, 0x0c, 0xfe, 0x42};
    uint32_t key[HAK_CHACHA_KEY_WORDS] = {0};
    uint32_t words[HAK_CHACHA_BLOCK_WORDS];
    hak_chacha8_block(key, 0, 0, words);
    assert_memory_equal(words, expected, sizeof expected);
}

static void each_counter_and_each_stream_gives_another_block(void **state) {
    (void)state;
    uint32_t key[HAK_CHACHA_KEY_WORDS] = {1, 2, 3};
    uint32_t words[4][HAK_CHACHA_BLOCK_WORDS];
    hak_chacha8_block(key, 0, 0, words[0]);
    hak_chacha8_block(key, 1, 0, words[1]);
    hak_chacha8_block(key, (uint64_t)1 << 32, 0, words[2]);
    hak_chacha8_block(key, 0, 1, words[3]);
    for (unsigned i = 0; i < COUNT_OF(words); i++) {
        for (unsigned j = 0; j < i; j++) {
            assert_memory_not_equal(words[i], words[j], sizeof words[i]);
        }
    }
}

static void draws_keep_within_their_bound_and_reach_all_of_it(void **state) {
    (void)state;
    hak_chance_start();
    unsigned seen[7] = {0};
    uint32_t seen_bits = 0;
    for (unsigned i = 0; i < DRAWS; i++) {
        uint32_t drawn = hak_chance_below(COUNT_OF(seen));
        assert_in_range(drawn, 0, COUNT_OF(seen) - 1);
        seen[drawn]++;
        seen_bits |= (uint32_t)1 << hak_chance_bit(0x80010100u);
    }
    for (unsigned i = 0; i < COUNT_OF(seen); i++) {
        assert_true(seen[i] != 0);
    }
    assert_int_equal(seen_bits, 0x80010100u);
    assert_int_equal(hak_chance_below(1), 0);
}

static void draw(uint32_t *numbers) {
    for (unsigned i = 0; i < DRAWS; i++) {
        numbers[i] = hak_chance_below(UINT32_MAX);
    }
}

/* What a child, forked now, draws. */
static void draw_in_a_child(uint32_t *numbers) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        draw(numbers);
        _exit(write(ends[1], numbers, DRAWS * sizeof *numbers) != (ssize_t)(DRAWS * sizeof *numbers));
    }
    assert_int_equal(read(ends[0], numbers, DRAWS * sizeof *numbers), DRAWS * sizeof *numbers);
    close(ends[0]);
    close(ends[1]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void assert_nothing_in_common(const uint32_t *some, const uint32_t *others) {
    for (unsigned i = 0; i + 2 < DRAWS; i++) {
        assert_null(memmem(others, DRAWS * sizeof *others, &some[i], 2 * sizeof *some));
    }
}

static void a_child_draws_neither_what_its_parent_nor_what_its_sibling_draws(void **state) {
    (void)state;
    static uint32_t of_first[DRAWS], of_second[DRAWS], of_parent[DRAWS];
    hak_chance_start();
    draw_in_a_child(of_first);
    draw_in_a_child(of_second);
    draw(of_parent);
    assert_nothing_in_common(of_first, of_parent);
    assert_nothing_in_common(of_second, of_parent);
    assert_nothing_in_common(of_first, of_second);
}

/* ---- guards ---- */

struct neighbours {
    const char *maps; /* the text of /proc/self/maps */
    unsigned ranges;
    unsigned unguarded;
};

/* Whether a mapping that nobody may touch covers the address. */
static bool is_guard(const char *maps, uintptr_t address) {
    for (const char *line = maps; line != NULL && *line != '\0';) {
        unsigned long start, end;
        char access[5];
        assert_int_equal(sscanf(line, "%lx-%lx %4s", &start, &end, access), 3);
        if (address >= start && address < end) {
            return strncmp(access, "---", 3) == 0;
        }
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return false;
}

static int look_at_range(void *start, size_t bytes, void *context) {
    struct neighbours *neighbours = context;
    neighbours->ranges++;
    neighbours->unguarded += !is_guard(neighbours->maps, (uintptr_t)start - 1);
    neighbours->unguarded += !is_guard(neighbours->maps, (uintptr_t)start + bytes);
    return 0;
}

static void metadata_lies_between_pages_that_nobody_may_touch(void **state) {
    (void)state;
    static char maps[256 * KIB];
    static void *blocks[64];
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = hak_malloc(64 * KIB * (1 + i % 40));
        assert_non_null(blocks[i]);
    }
    FILE *file = fopen("/proc/self/maps", "r");
    assert_non_null(file);
    size_t bytes = fread(maps, 1, sizeof maps - 1, file);
    fclose(file);
    assert_in_range(bytes, 1, sizeof maps - 2);
    struct neighbours neighbours = {.maps = maps};
    hak_meta_visit_mapped(look_at_range, &neighbours);
    assert_in_range(neighbours.ranges, 1, 64);
    hak_registry_visit_mapped(look_at_range, &neighbours);
    assert_int_equal(neighbours.unguarded, 0);
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        hak_free(blocks[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_of_the_cipher_is_the_known_one),
        cmocka_unit_test(each_counter_and_each_stream_gives_another_block),
        cmocka_unit_test(draws_keep_within_their_bound_and_reach_all_of_it),
        cmocka_unit_test(a_child_draws_neither_what_its_parent_nor_what_its_sibling_draws),
        cmocka_unit_test(metadata_lies_between_pages_that_nobody_may_touch),
    };
    return cmocka_run_group_tests_name("chance", tests, NULL, heap_is_sound);
}
