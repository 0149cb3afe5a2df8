/*
 * pointers.c - a fuzzing target: any pointer value given to every function that takes one.
 *
 * An input is a header and records of six bytes: blocks come and go on several threads, and between them
 * hak_owns() is asked about live, freed, interior, tagged and made-up pointers. The header then picks one
 * more pointer and the function that gets it, in a child process: a live block is served as it should be, and
 * everything else ends in the one exact line and SIGABRT.
 */
#include "fuzz/pointers.h"
#include "base/config.h"
#include "fuzz/kernel.h"
#include "fuzz/own.h"
#include "fuzz/requests.h"
#include "fuzz/shadow.h"
#include "fuzz/sizes.h"
#include "fuzz/target.h"
#include "fuzz/waiting.h"
#include "fuzz/workers.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOTS        32u /* of the shadow's */
#define GRAVES       64u
#define RECORDS_MAX  64u
#define STATIC_BYTES 256u
#define MAPPED_BYTES ((size_t)1 << 20)
/* In checked mode, which writes to all of each block. */
#define FILLED_BYTES_MAX ((size_t)256 << 10)

#define POINTER_KINDS   11u
#define POINTER_FOREIGN 8u

/* Blocks that were freed, the latest last. */
static struct grave graves[GRAVES];
static unsigned grave_count;
static bool was_just_freed; /* the last of the graves, and nothing happened since */

static unsigned char statics[STATIC_BYTES];
static const unsigned char constants[STATIC_BYTES] = {1};

/* ---- blocks come and go ----------------------------------------------------------------------------- */

struct step {
    uint8_t slot;
    uint16_t size;
    uint8_t argument;
};

static void free_slot(void *context) {
    const struct step *step = context;
    struct shadow_block *block = &shadow_blocks[step->slot];
    struct grave grave = {.start = block->start, .bytes = block->usable_bytes};
    if (block->start == NULL) {
        return;
    }
    /* Only checked mode looks at what is claimed, and then it must be right. */
    size_t bytes = fuzz_is_checked() ? block->usable_bytes : block->bytes;
    size_t align = fuzz_is_checked() ? block->align : HAK_ALIGN_BYTES;
    request_free(step->argument, shadow_remove(step->slot), bytes, align);
    waiting_enter(grave.start, grave.bytes, align);
    if (grave_count == GRAVES) {
        grave_count--;
        memmove(graves, graves + 1, grave_count * sizeof graves[0]);
    }
    graves[grave_count++] = grave;
    was_just_freed = true;
}

static void allocate_slot(void *context) {
    struct step *step = context;
    size_t bytes = size_of_code(step->size);
    size_t align = (step->argument & 128) != 0 ? alignment_of_code(step->argument & 31) : 16;
    if (bytes > (fuzz_is_checked() ? FILLED_BYTES_MAX : (size_t)64 << 20)) {
        bytes &= 0xFFFF;
    }
    free_slot(step);
    void *block = hak_aligned_alloc(align, bytes);
    if (block != NULL) {
        shadow_enter(step->slot, block, bytes, align);
    } else {
        waiting_forget();
    }
    was_just_freed = false;
}

/* ---- pointers --------------------------------------------------------------------------------------- */

/* Memory that is not hakmem's, of four kinds. */
static uintptr_t foreign_address(unsigned kind, uint32_t number) {
    static unsigned char *mapped;
    if (mapped == NULL) {
        mapped = mmap(NULL, MAPPED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    switch (kind % 4) {
    case 0:
        return (uintptr_t)__builtin_frame_address(0);
    case 1:
        return (uintptr_t)statics + number % STATIC_BYTES;
    case 2:
        return (uintptr_t)constants + number % STATIC_BYTES;
    default:
        return (uintptr_t)mapped + number % MAPPED_BYTES;
    }
}

/* A pointer out of four bytes: what it starts from and how far away it is. */
static const void *pointer_of(const uint8_t *code) {
    uint32_t number = (uint32_t)(code[1] | code[2] << 8 | code[3] << 16);
    uintptr_t offset = (uintptr_t)(intptr_t)(int16_t)(code[2] | code[3] << 8);
    const struct shadow_block *block = &shadow_blocks[code[1] % SLOTS];
    uintptr_t start = (uintptr_t)block->start;
    uintptr_t grave = (uintptr_t)graves[grave_count == 0 ? 0 : code[1] % grave_count].start;
    switch (code[0] % POINTER_KINDS) {
    case 0:
        return (const void *)start;
    case 1:
        return (const void *)(start + offset);
    case 2:
        return (const void *)(start +
                              (start == 0 || block->usable_bytes == 0 ? 0 : number % block->usable_bytes));
    case 3:
        return (const void *)(start + block->usable_bytes);
    case 4: /* tagged */
        return (const void *)(start ^ (uintptr_t)1 << (code[2] & 63));
    case 5:
        return (const void *)grave;
    case 6:
        return (const void *)(grave + offset);
    case 7: /* in the block's unit or one near it */
        return (const void *)((start & ~(uintptr_t)0xFFFF) + offset * 16);
    case POINTER_FOREIGN:
        return (const void *)foreign_address(code[1], number);
    case 9:
        return (const void *)((uintptr_t)number << (code[0] / POINTER_KINDS * 2));
    default:
        return (const void *)(~(uintptr_t)0 - ((uintptr_t)number << (code[0] / POINTER_KINDS * 2)));
    }
}

static bool is_live(const void *pointer) {
    return shadow_find(pointer) >= 0;
}

/* What the line must say about a pointer that is no live block; NULL where it depends on what was there
 * before. */
static struct verdict verdict_on(const uint8_t *code, const void *pointer) {
    struct verdict verdict = {.text = NULL};
    bool is_never_ours = code[0] % POINTER_KINDS == POINTER_FOREIGN && code[1] % 4 != 3;
    int slot = shadow_find_around(pointer);
    if (slot >= 0) {
        verdict.text = "invalid pointer";
        verdict.block_bytes = shadow_blocks[slot].usable_bytes;
        verdict.may_be_freed = fuzz_is_checked() || fuzz_is_sampling();
    } else if (is_never_ours || (uintptr_t)pointer >> 47 != 0) {
        verdict.text = "pointer not from this heap";
    } else if (was_just_freed && pointer == graves[grave_count - 1].start) {
        verdict.is_freed = true;
        verdict.block_bytes = graves[grave_count - 1].bytes;
    }
    return verdict;
}

/* ---- one input -------------------------------------------------------------------------------------- */

static void run_record(const uint8_t *record) {
    struct step step = {
        .slot = record[1] % SLOTS, .size = (uint16_t)(record[2] | record[3] << 8), .argument = record[4]};
    unsigned thread = record[5] % WORKERS_COUNT;
    switch (record[0] % 8) {
    case 0:
    case 1:
        workers_run(thread, allocate_slot, &step);
        break;
    case 2:
        workers_run(thread, free_slot, &step);
        break;
    case 3:
        if (record[4] % 8 == 0) {
            workers_end(thread, false);
        }
        break;
    case 4:
        if (record[4] % 8 == 0) {
            (void)hak_trim(0);
        } else if (record[4] % 8 == 1) {
            (void)own_mallopt(M_PERTURB, record[5]);
        }
        break;
    default: {
        const void *pointer = pointer_of(record + 1);
        FUZZ_CHECK(hak_owns(pointer) == is_live(pointer));
        break;
    }
    }
}

static void free_all(void) {
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        struct step step = {.slot = (uint8_t)slot, .argument = 255};
        free_slot(&step);
    }
    grave_count = 0;
    was_just_freed = false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static unsigned inputs;
    if (bytes < 6) {
        return 0;
    }
    (void)fuzz_start_modes();
    for (size_t at = 6; at + 6 <= bytes && at < RECORDS_MAX * 6; at += 6) {
        run_record(data + at);
    }
    /* A child costs as much as a hundred inputs without one. */
    if (data[0] % 32 == 0 || fuzz_is_replay) {
        const void *pointer = pointer_of(data + 2);
        int slot = shadow_find(pointer);
        struct verdict verdict = verdict_on(data + 2, pointer);
        pointers_give(data[1], (void *)(uintptr_t)pointer, slot >= 0 ? &shadow_blocks[slot] : NULL, &verdict);
    }
    free_all();
    (void)own_mallopt(M_PERTURB, 0);
    if (++inputs % 16 == 0 || fuzz_is_replay) {
        check_books(CHECK_BOOKS_EXACT);
    }
    return 0;
}
