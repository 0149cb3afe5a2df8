/*
 * operations.c - a fuzzing target: a stream of operations on up to four threads against the shadow model.
 *
 * An input is a byte of modes and then records of six bytes: operation and thread, slot, size, argument.
 * After each operation errno, contents, alignment, length and ownership are what the model says; statistics,
 * walks and hak_verify when the stream asks for them and, now and then, at its end. A failure is allowed only
 * where a system call failed or the request was absurd. State is left behind on purpose from one input to the
 * next (caches, kept memory, threads) unless the modes ask for a fresh start.
 */
#include "fuzz/operations.h"
#include "check/zones.h"
#include "fuzz/kernel.h"
#include "fuzz/own.h"
#include "fuzz/requests.h"
#include "fuzz/shadow.h"
#include "fuzz/sizes.h"
#include "fuzz/target.h"
#include "fuzz/waiting.h"
#include "fuzz/workers.h"
#include "heap/front.h"

#include <errno.h>
#include <string.h>

#define RECORDS_MAX         80u
#define CHECK_EVERY         16u /* inputs */
#define LIVE_BYTES_MAX      ((size_t)256 << 20)
#define FILLED_BYTES_MAX    ((size_t)1 << 20) /* the same while hakmem writes to all of each block */
#define MANY_BYTES_MAX      ((size_t)4 << 20) /* in one operation */
#define ERRNO_MARK          777
#define MAP_THRESHOLD_BYTES ((size_t)1 << 20) /* as hakmem starts with */

static bool is_threshold_changed; /* by this input */
static unsigned
    perturb_fill; /* what new blocks are filled with, of the thread that asked for it; 0: nothing */
static unsigned perturb_thread;
static unsigned current_thread;

/* ---- one operation -------------------------------------------------------------------------------- */

/* A size that the model can still hold: absurd ones, which must fail, and what fits under its limit. */
static size_t bounded(size_t bytes) {
    bool is_filled = (hak_front_modes() & (HAK_FRONT_PERTURB | HAK_FRONT_CHECKED)) != 0;
    size_t bytes_max = is_filled ? FILLED_BYTES_MAX : LIVE_BYTES_MAX;
    bool is_absurd = bytes > LIVE_BYTES_MAX * 4;
    return is_absurd || shadow_sums.usable_bytes + bytes <= bytes_max ? bytes : bytes & 0xFFF;
}

static void free_slot(unsigned slot, const struct record *record) {
    if (shadow_blocks[slot].start == NULL) {
        return;
    }
    struct shadow_block block = shadow_blocks[slot];
    (void)shadow_remove(slot);
    errno = ERRNO_MARK;
    /* Only checked mode looks at what is claimed, and then it must be right. */
    request_free(record->argument, block.start, fuzz_is_checked() ? block.usable_bytes : block.bytes,
                 fuzz_is_checked() ? block.align : HAK_ALIGN_BYTES);
    FUZZ_CHECK(errno == ERRNO_MARK);
    FUZZ_CHECK(!hak_owns(block.start));
    waiting_enter(block.start, block.usable_bytes, block.align);
}

/* Other threads take the mode up a little later. */
static void check_filled(const unsigned char *block, size_t bytes, unsigned fill) {
    for (size_t i = 0; i < bytes; i += i < 64 ? 1 : 4093) {
        FUZZ_CHECK(block[i] == fill);
    }
}

#define PARKED_BYTES_MAX ((size_t)256 * 1024)

/* How many bytes may be used of a block of an ordinary request. */
static bool is_right_length(const struct request *request, size_t usable_bytes, bool is_as_usual) {
    if (fuzz_is_checked()) {
        return usable_bytes == request->bytes || (!request->is_plain && usable_bytes % 4096 == 0);
    }
    size_t good_bytes = hak_good_size(request->bytes);
    bool may_be_parked = request->bytes > 32768 && good_bytes <= PARKED_BYTES_MAX;
    size_t most_bytes = may_be_parked ? hak_smaller(good_bytes * 2, PARKED_BYTES_MAX) : good_bytes;
    return !request->is_plain || !is_as_usual || (usable_bytes >= good_bytes && usable_bytes <= most_bytes) ||
           (fuzz_is_sampling() && usable_bytes == request->bytes);
}

/* Compares what the request gave with what it may give. */
static void take(unsigned slot, const struct request *request, uint64_t failures_before) {
    if (request->block == NULL) {
        waiting_forget();
        FUZZ_CHECK(request->error == request->expected_error ||
                   (request->expected_error == 0 && request->error == ENOMEM));
        FUZZ_CHECK(request->expected_error != 0 || kernel_failures() != failures_before ||
                   request->bytes > LIVE_BYTES_MAX * 4 || request->align > LIVE_BYTES_MAX);
        return;
    }
    FUZZ_CHECK(request->expected_error == 0);
    FUZZ_CHECK(errno == ERRNO_MARK);
    if (request->is_zeroed) {
        shadow_check_zero(request->block, request->bytes);
    } else if (fuzz_is_checked()) {
        check_filled(request->block, request->bytes, HAK_FILL_NEW);
    } else if (perturb_fill != 0 && perturb_thread == current_thread) {
        check_filled(request->block, request->bytes, perturb_fill);
    }
    shadow_enter(slot, request->block, request->bytes, request->align);
    /* A large block may be of the other kind when there is no memory for the first, or a lower threshold. */
    bool is_as_usual = request->bytes <= HAK_MID_MAX_BYTES ||
                       (request->bytes < MAP_THRESHOLD_BYTES && kernel_failures() == failures_before &&
                        !is_threshold_changed);
    FUZZ_CHECK(is_right_length(request, shadow_blocks[slot].usable_bytes, is_as_usual));
}

static void allocate_slot(unsigned slot, const struct record *record) {
    struct request request = {.bytes = bounded(size_of_code(record->size)), .argument = record->argument};
    uint64_t failures_before = kernel_failures();
    if (shadow_blocks[slot].start != NULL) {
        free_slot(slot, record);
    }
    errno = ERRNO_MARK;
    switch (record->operation) {
    case OPERATION_CALLOC:
        request_calloc(&request);
        break;
    case OPERATION_ALIGNED:
        request_aligned(&request);
        break;
    default:
        request_plain(&request);
        break;
    }
    take(slot, &request, failures_before);
}

static void resize_slot(unsigned slot, const struct record *record) {
    struct shadow_block *block = &shadow_blocks[slot];
    if (block->start == NULL) {
        allocate_slot(slot, record);
        return;
    }
    struct request request = {.bytes = bounded(size_of_code(record->size)), .argument = record->argument};
    uint64_t failures_before = kernel_failures();
    shadow_check(block);
    errno = ERRNO_MARK;
    request_resize(&request, block->start);
    if (request.bytes == 0 && request.expected_error == 0) {
        struct shadow_block freed = *block;
        FUZZ_CHECK(request.block == NULL && errno == ERRNO_MARK);
        shadow_forget(slot);
        waiting_enter(freed.start, freed.usable_bytes, freed.align);
    } else if (request.block == NULL) {
        waiting_forget();
        FUZZ_CHECK(errno == ENOMEM);
        FUZZ_CHECK(request.expected_error != 0 || kernel_failures() != failures_before ||
                   request.bytes > LIVE_BYTES_MAX * 4);
        shadow_check(block);
    } else {
        struct shadow_block before = *block;
        FUZZ_CHECK(request.expected_error == 0 && errno == ERRNO_MARK);
        shadow_resized(slot, request.block, request.bytes);
        if (request.block != before.start) {
            waiting_enter(before.start, before.usable_bytes, before.align);
        }
    }
}

/* Many slots in a row, or with gaps between them: fills what caches and slabs hold. */
static void do_many(const struct record *record) {
    unsigned count = (unsigned)record->argument + 1;
    unsigned step = record->operation == OPERATION_FREE_MANY ? (record->size & 7) + 1 : 1;
    unsigned slot = record->slot * (SHADOW_SLOTS / 256);
    size_t bytes_before = shadow_sums.usable_bytes;
    for (unsigned i = 0; i < count; i++, slot = (slot + step) % SHADOW_SLOTS) {
        if (record->operation == OPERATION_FREE_MANY) {
            free_slot(slot, record);
        } else if (shadow_blocks[slot].start == NULL &&
                   shadow_sums.usable_bytes - bytes_before < MANY_BYTES_MAX) {
            allocate_slot(slot, record);
        }
    }
}

static void ask_whose(const struct record *record) {
    const struct shadow_block *block = &shadow_blocks[record->slot];
    const void *pointer =
        (const void *)((uintptr_t)block->start + (uintptr_t)(intptr_t)(int16_t)record->size);
    FUZZ_CHECK(hak_owns(pointer) == (shadow_find(pointer) >= 0));
    FUZZ_CHECK(hak_good_size(size_of_code(record->size)) >= size_of_code(record->size));
    FUZZ_CHECK(hak_usable_size(NULL) == 0 && own_malloc_usable_size(NULL) == 0);
    if ((record->argument & 3) == 3 && block->start != NULL) {
        (void)hak_defrag_hint(block->start); /* changes which blocks come next */
    }
}

/* Something is written where it should not be, and put right again. */
static void damage(const struct record *record) {
    const struct shadow_block *block = &shadow_blocks[record->slot];
    if (!fuzz_is_checked()) {
        return;
    }
    if ((record->argument & 16) != 0 && block->start != NULL) {
        shadow_damage(block, record->size);
    }
    if ((record->argument & 32) != 0) {
        waiting_damage(record->slot, record->size);
    }
}

static void set_option(const struct record *record) {
    static const int parameters[] = {M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX, M_ARENA_TEST, 1234};
    int parameter = parameters[record->slot % (sizeof parameters / sizeof parameters[0])];
    int value = (int)(size_of_code(record->size) & UINT32_MAX);
    bool is_refused = parameter == 1234 || (parameter == M_MMAP_THRESHOLD && (value < 0 || value > 32 << 20));
    FUZZ_CHECK(own_mallopt(parameter, value) == !is_refused);
    is_threshold_changed = is_threshold_changed || parameter == M_MMAP_THRESHOLD;
}

static void plan_fault(const struct record *record) {
    static const int errors[] = {ENOMEM, EINVAL, EAGAIN, EPERM};
    kernel_plan_fault(record->size & 31, record->argument & 15, (record->argument >> 4) + 1,
                      errors[record->slot & 3]);
}

static void do_record(void *context) {
    const struct record *record = context;
    switch (record->operation) {
    case OPERATION_PLAIN:
    case OPERATION_CALLOC:
    case OPERATION_ALIGNED:
        allocate_slot(record->slot, record);
        break;
    case OPERATION_RESIZE:
        resize_slot(record->slot, record);
        break;
    case OPERATION_FREE:
        free_slot(record->slot, record);
        break;
    case OPERATION_PLAIN_MANY:
    case OPERATION_FREE_MANY:
        do_many(record);
        break;
    case OPERATION_WHOSE:
        ask_whose(record);
        break;
    case OPERATION_TRIM:
        (void)((record->argument & 1) != 0 ? hak_trim(size_of_code(record->size))
                                           : own_malloc_trim(size_of_code(record->size)));
        break;
    case OPERATION_MALLOPT:
        set_option(record);
        break;
    case OPERATION_PERTURB:
        perturb_fill = (record->argument & 1) != 0 ? record->argument ^ 0xFF : 0;
        perturb_thread = current_thread;
        (void)own_mallopt(M_PERTURB, (record->argument & 1) != 0 ? record->argument : 0);
        break;
    case OPERATION_METER:
        perturb_fill = 0;
        hak_front_set_modes(fuzz_start_modes() | ((record->argument & 1) != 0 ? HAK_FRONT_METERED : 0), 0);
        break;
    case OPERATION_CHECK:
        check_books(record->argument & 15);
        damage(record);
        break;
    case OPERATION_FAULT:
        plan_fault(record);
        break;
    default: /* OPERATION_CLOCK */
        kernel_advance_ms((uint64_t)record->argument << (record->size & 7));
        break;
    }
}

/* ---- one input ------------------------------------------------------------------------------------ */

static void run_record(const uint8_t *bytes) {
    struct record record = {
        .operation = (bytes[0] & 63) % (OPERATION_END + 1),
        .slot = bytes[1],
        .size = (uint16_t)(bytes[2] | bytes[3] << 8),
        .argument = bytes[4],
    };
    unsigned thread = bytes[0] >> 6;
    current_thread = thread;
    if (record.operation == OPERATION_END) {
        workers_end(thread, (record.argument & 1) != 0);
        waiting_forget(); /* it may have freed blocks of its own */
    } else {
        workers_run(thread, do_record, &record);
    }
}

static void free_all(void *context) {
    struct record record = {.argument = *(const uint8_t *)context};
    for (unsigned slot = 0; slot < SHADOW_SLOTS && shadow_sums.blocks != 0; slot++) {
        free_slot(slot, &record);
    }
}

/* Nothing is live: what earlier inputs left behind goes too. */
static void start_afresh(void) {
    for (unsigned i = 1; i < WORKERS_COUNT; i++) {
        workers_end(i, false);
    }
    waiting_forget();
    (void)hak_trim(0);
    check_books(CHECK_BOOKS_MAPPED);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static unsigned inputs;
    if (bytes == 0) {
        return 0;
    }
    (void)fuzz_start_modes();
    uint8_t modes = data[0];
    if ((modes & MODE_FRESH) != 0) {
        start_afresh();
    }
    for (size_t at = 1; at + RECORD_BYTES <= bytes && at < RECORDS_MAX * RECORD_BYTES; at += RECORD_BYTES) {
        run_record(data + at);
    }
    kernel_plan_fault(0, 0, 0, 0);
    (void)own_mallopt(M_MMAP_THRESHOLD, (int)MAP_THRESHOLD_BYTES);
    is_threshold_changed = false;
    hak_front_set_modes(fuzz_start_modes(), 0);
    perturb_fill = 0;
    bool is_checked = ++inputs % CHECK_EVERY == 0 || fuzz_is_replay;
    if (is_checked) {
        shadow_check_all();
    }
    workers_run(modes >> 6, free_all, &modes);
    if (is_checked) {
        check_books(CHECK_BOOKS_EXACT);
    }
    return 0;
}
