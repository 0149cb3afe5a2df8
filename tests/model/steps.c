/*
 * steps.c - the library's accesses as steps: each is handed to the search, unless it concerns nobody else.
 */
#include "model/checker.h"

/* Makes it the fiber's next step and waits until the search has executed it. */
static void make_step(struct op *op) {
    struct op *pending = pending_op(current_thread);
    *pending = *op;
    fiber_yield();
    *op = *pending;
    pending->kind = OP_NONE;
}

/* Executes it at once when it is no step. False: it is one, and has been executed. */
static bool is_private(struct op *op, const volatile void *p, unsigned bytes, bool is_write) {
    if (!is_exploring) {
        return true;
    }
    op->location = memory_location(p, bytes, is_write, false);
    if (op->location == NULL) {
        if (world_owns((uintptr_t)p)) {
            races_atomic(current_thread, (uintptr_t)p, bytes, is_write);
        }
        return true;
    }
    note_site(op->site);
    make_step(op);
    return false;
}

uint64_t model_load(const struct model_site *site, const volatile void *p, unsigned bytes) {
    struct op op = {.kind = OP_LOAD, .site = site};
    if (is_exploring && bytes == 8 && memory_is_bytes(p)) {
        uint64_t value = 0;
        for (unsigned i = 0; i < 8; i++) {
            value |= model_load(site, (const volatile char *)p + i, 1) << (8 * i);
        }
        return value;
    }
    return is_private(&op, p, bytes, false) ? memory_read_now(p, bytes) : op.result;
}

void model_store(const struct model_site *site, volatile void *p, unsigned bytes, uint64_t value) {
    struct op op = {.kind = OP_STORE, .site = site, .value = value};
    if (is_exploring && bytes == 8 && memory_is_bytes(p)) {
        for (unsigned i = 0; i < 8; i++) {
            model_store(site, (volatile char *)p + i, 1, value >> (8 * i) & 0xFF);
        }
    } else if (is_private(&op, p, bytes, true)) {
        memory_write_now(p, bytes, value);
    }
}

uint64_t model_exchange(const struct model_site *site, volatile void *p, unsigned bytes, uint64_t value) {
    struct op op = {.kind = OP_EXCHANGE, .site = site, .value = value};
    if (is_private(&op, p, bytes, true)) {
        op.result = memory_read_now(p, bytes);
        memory_write_now(p, bytes, value);
    }
    return op.result;
}

uint64_t model_add(const struct model_site *site, volatile void *p, unsigned bytes, uint64_t value) {
    struct op op = {.kind = OP_ADD, .site = site, .value = value};
    if (is_private(&op, p, bytes, true)) {
        op.result = memory_read_now(p, bytes);
        memory_write_now(p, bytes, op.result + value);
    }
    return op.result;
}

bool model_cas(const struct model_site *site, volatile void *p, unsigned bytes, uint64_t *expected,
               uint64_t value, bool is_weak) {
    struct op op = {.kind = OP_CAS, .site = site, .value = value, .expected = *expected, .is_weak = is_weak};
    if (is_private(&op, p, bytes, true)) {
        op.result = memory_read_now(p, bytes);
        op.is_done = op.result == *expected;
        if (op.is_done) {
            memory_write_now(p, bytes, value);
        }
    }
    *expected = op.result;
    return op.is_done;
}

static void lock_step(void *lock, enum op_kind kind) {
    if (is_exploring) {
        struct op op = {.kind = kind, .location = memory_location(lock, 4, true, true)};
        if (op.location != NULL) {
            make_step(&op);
        }
    }
}

void model_lock(void *lock) {
    lock_step(lock, OP_LOCK);
}

void model_unlock(void *lock) {
    lock_step(lock, OP_UNLOCK);
}

void model_futex_wait(volatile void *word, uint32_t expected) {
    struct op op = {.kind = OP_WAIT, .expected = expected};
    op.location = memory_location(word, 4, true, false);
    if (is_exploring && op.location != NULL) {
        make_step(&op);
    }
}

void model_futex_wake(volatile void *word, unsigned count) {
    struct op op = {.kind = OP_WAKE, .value = count};
    op.location = memory_location(word, 4, true, false);
    if (is_exploring && op.location != NULL) {
        make_step(&op);
    }
}

void model_wait_for_others(void) {
    static uint32_t word;
    struct op op = {.kind = OP_LAST};
    if (is_exploring) {
        op.location = memory_private(&word);
        make_step(&op);
    }
}

unsigned model_thread(void) {
    return current_thread;
}

/* The library's calls of abort() are renamed to this. */
__attribute__((noreturn)) void model_abort(void);
void model_abort(void) {
    model_fail("the library called abort()");
}
