/*
 * unwind_table.c - see unwind_table.h. .eh_frame_hdr leads to the description (FDE) of the function around an
 * address; the instructions of what functions have in common (CIE) and then its own are carried out up to the
 * address. Numbers of registers are those of x86-64 (System V ABI, figure 3.36).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* struct dl_find_object */
#endif
#include "check/unwind_table.h"
#include "check/libc.h"
#include <string.h>

#define REGISTER_BASE    6u
#define REGISTER_STACK   7u
#define REGISTER_ADDRESS 16u

#define ENCODED_PCREL_SDATA4   0x1Bu
#define ENCODED_DATAREL_SDATA4 0x3Bu
#define ENCODED_UDATA4         0x03u

#define STATES_MAX 4u /* remembered one inside another */
#define WORD_BYTES 8

/* Bytes that are read from front to back. `is_bad`: there were not enough, or not understood. */
struct bytes {
    const uint8_t *at, *end;
    bool is_bad;
};

/* What the instructions change. Offsets are in bytes from the caller's stack pointer (the CFA). */
struct state {
    uint64_t outer_register;
    int64_t outer_offset;
    int64_t base_at;    /* 0: where it was */
    int64_t address_at; /* of the return address */
    bool is_strange;    /* an expression or another register is needed */
    bool is_outermost;  /* there is no return address */
};

struct common {
    struct bytes instructions;
    uint64_t code_align;
    int64_t data_align;
    bool has_extra; /* augmentation data in each description */
    bool is_signal;
};

static uint64_t read_fixed(struct bytes *bytes, size_t count) {
    uint64_t value = 0;
    if ((size_t)(bytes->end - bytes->at) < count) {
        bytes->is_bad = true;
        return 0;
    }
    memcpy(&value, bytes->at, count); /* little-endian */
    bytes->at += count;
    return value;
}

static uint64_t read_unsigned(struct bytes *bytes) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 63; shift += 7) {
        uint64_t byte = read_fixed(bytes, 1);
        value |= (byte & 0x7F) << shift;
        if ((byte & 0x80) == 0) {
            return value;
        }
    }
    bytes->is_bad = true;
    return 0;
}

static int64_t read_signed(struct bytes *bytes) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 63;) {
        uint64_t byte = read_fixed(bytes, 1);
        value |= (byte & 0x7F) << shift;
        shift += 7;
        if ((byte & 0x80) == 0) {
            return (byte & 0x40) != 0 ? (int64_t)(value | ~UINT64_C(0) << shift) : (int64_t)value;
        }
    }
    bytes->is_bad = true;
    return 0;
}

static void skip(struct bytes *bytes, uint64_t count) {
    if ((uint64_t)(bytes->end - bytes->at) < count) {
        bytes->is_bad = true;
    } else {
        bytes->at += count;
    }
}

/* ---- finding ---- */

/* The object's .eh_frame_hdr, or NULL. */
static const uint8_t *header_of(uintptr_t address) {
#ifdef DLFO_STRUCT_HAS_EH_DBASE
    struct dl_find_object found;
    if (hak_check_libc.find_object != NULL && hak_check_libc.find_object((void *)address, &found) == 0) {
        return found.dlfo_eh_frame;
    }
#else
    (void)address;
#endif
    return NULL;
}

/* The description of the last function that begins at or below the address; NULL when there is none, or the
 * encoding is a rare one. */
static const uint8_t *description_of(const uint8_t *header, uintptr_t address) {
    struct row {
        int32_t begin, description; /* from the header's start */
    };
    uint32_t count;
    if (header[0] != 1 || header[1] != ENCODED_PCREL_SDATA4 || header[2] != ENCODED_UDATA4 ||
        header[3] != ENCODED_DATAREL_SDATA4) {
        return NULL;
    }
    memcpy(&count, header + 8, sizeof count);
    const struct row *rows = (const struct row *)(const void *)(header + 12);
    uint32_t low = 0;
    uint32_t high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if ((uintptr_t)header + (uintptr_t)(intptr_t)rows[middle].begin <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low == 0 ? NULL : header + rows[low - 1].description;
}

/* The record that starts there, its length taken off. */
static struct bytes record_at(const uint8_t *start) {
    uint32_t length;
    memcpy(&length, start, sizeof length);
    bool is_bad = length == 0 || length == UINT32_MAX; /* the end of all, or 64-bit DWARF */
    return (struct bytes){
        .at = start + sizeof length, .end = start + sizeof length + length, .is_bad = is_bad};
}

/* The letters of an augmentation string that starts with z, and their data. */
static void read_augmentation(struct bytes *record, const char *letters, struct common *common) {
    uint64_t extra_bytes = read_unsigned(record);
    struct bytes extra = {.at = record->at, .end = record->end};
    common->has_extra = true;
    skip(record, extra_bytes);
    for (const char *letter = letters + 1; *letter != '\0'; letter++) {
        if (*letter == 'R') {
            record->is_bad |= read_fixed(&extra, 1) != ENCODED_PCREL_SDATA4;
        } else if (*letter == 'L') {
            (void)read_fixed(&extra, 1);
        } else if (*letter == 'P') {
            unsigned encoding = (unsigned)read_fixed(&extra, 1) & 0xF;
            skip(&extra, encoding == 0xB || encoding == 0x3 ? 4 : WORD_BYTES);
        } else if (*letter == 'S') {
            common->is_signal = true;
        } else {
            record->is_bad = true;
        }
    }
    record->is_bad |= extra.is_bad;
}

static struct common read_common(const uint8_t *start) {
    struct bytes record = record_at(start);
    struct common common = {.has_extra = false};
    uint64_t id = read_fixed(&record, 4);
    uint64_t version = read_fixed(&record, 1);
    const char *letters = (const char *)record.at;
    record.is_bad |= id != 0 || (version != 1 && version != 3);
    while (read_fixed(&record, 1) != 0 && !record.is_bad) {
    }
    common.code_align = read_unsigned(&record);
    common.data_align = read_signed(&record);
    uint64_t address_register = version == 1 ? read_fixed(&record, 1) : read_unsigned(&record);
    record.is_bad |= address_register != REGISTER_ADDRESS;
    if (!record.is_bad && letters[0] == 'z') {
        read_augmentation(&record, letters, &common);
    } else {
        record.is_bad |= letters[0] != '\0';
    }
    common.instructions = record;
    return common;
}

/* ---- carrying out ---- */

static void set_place(struct state *state, uint64_t which, int64_t offset) {
    if (which == REGISTER_BASE) {
        state->base_at = offset;
    } else if (which == REGISTER_ADDRESS) {
        state->address_at = offset;
    } else if (which == REGISTER_STACK) {
        state->is_strange = true;
    }
}

static void set_strange(struct state *state, uint64_t which) {
    state->is_strange |= which == REGISTER_BASE || which == REGISTER_STACK || which == REGISTER_ADDRESS;
}

enum instruction {
    CFA_NOP = 0x00,
    CFA_ADVANCE_LOC1 = 0x02,
    CFA_ADVANCE_LOC2 = 0x03,
    CFA_ADVANCE_LOC4 = 0x04,
    CFA_OFFSET_EXTENDED = 0x05,
    CFA_RESTORE_EXTENDED = 0x06,
    CFA_UNDEFINED = 0x07,
    CFA_SAME_VALUE = 0x08,
    CFA_REGISTER = 0x09,
    CFA_REMEMBER_STATE = 0x0A,
    CFA_RESTORE_STATE = 0x0B,
    CFA_DEF_CFA = 0x0C,
    CFA_DEF_CFA_REGISTER = 0x0D,
    CFA_DEF_CFA_OFFSET = 0x0E,
    CFA_EXPRESSION = 0x10,
    CFA_OFFSET_EXTENDED_SF = 0x11,
    CFA_DEF_CFA_SF = 0x12,
    CFA_DEF_CFA_OFFSET_SF = 0x13,
    CFA_VAL_EXPRESSION = 0x16,
    CFA_GNU_ARGS_SIZE = 0x2E,
    /* With an operand in the lower six bits. */
    CFA_ADVANCE_LOC = 0x40,
    CFA_OFFSET = 0x80,
    CFA_RESTORE = 0xC0,
};

/* Instructions about registers and the CFA. False for one that is not known. */
static bool carry_out(struct bytes *bytes, unsigned instruction, const struct common *common,
                      const struct state *initial, struct state *state) {
    uint64_t which;
    switch (instruction) {
    case CFA_NOP:
        return true;
    case CFA_OFFSET_EXTENDED:
        which = read_unsigned(bytes);
        set_place(state, which, (int64_t)read_unsigned(bytes) * common->data_align);
        return true;
    case CFA_OFFSET_EXTENDED_SF:
        which = read_unsigned(bytes);
        set_place(state, which, read_signed(bytes) * common->data_align);
        return true;
    case CFA_RESTORE_EXTENDED:
    case CFA_SAME_VALUE:
        which = read_unsigned(bytes);
        set_place(state, which, which == REGISTER_BASE ? initial->base_at : initial->address_at);
        return true;
    case CFA_UNDEFINED:
        which = read_unsigned(bytes);
        set_strange(state, which);
        state->is_outermost |= which == REGISTER_ADDRESS;
        return true;
    case CFA_REGISTER:
        set_strange(state, read_unsigned(bytes));
        (void)read_unsigned(bytes);
        return true;
    case CFA_EXPRESSION:
    case CFA_VAL_EXPRESSION:
        set_strange(state, read_unsigned(bytes));
        skip(bytes, read_unsigned(bytes));
        return true;
    case CFA_DEF_CFA:
        state->outer_register = read_unsigned(bytes);
        state->outer_offset = (int64_t)read_unsigned(bytes);
        return true;
    case CFA_DEF_CFA_SF:
        state->outer_register = read_unsigned(bytes);
        state->outer_offset = read_signed(bytes) * common->data_align;
        return true;
    case CFA_DEF_CFA_REGISTER:
        state->outer_register = read_unsigned(bytes);
        return true;
    case CFA_DEF_CFA_OFFSET:
        state->outer_offset = (int64_t)read_unsigned(bytes);
        return true;
    case CFA_DEF_CFA_OFFSET_SF:
        state->outer_offset = read_signed(bytes) * common->data_align;
        return true;
    case CFA_GNU_ARGS_SIZE:
        (void)read_unsigned(bytes);
        return true;
    default:
        return false;
    }
}

/* Bytes of code that the instruction goes on by, 0 for one of another kind. */
static uint64_t advance_of(struct bytes *bytes, unsigned instruction, bool *is_advance) {
    *is_advance = true;
    if ((instruction & 0xC0) == CFA_ADVANCE_LOC) {
        return instruction & 0x3F;
    }
    switch (instruction) {
    case CFA_ADVANCE_LOC1:
        return read_fixed(bytes, 1);
    case CFA_ADVANCE_LOC2:
        return read_fixed(bytes, 2);
    case CFA_ADVANCE_LOC4:
        return read_fixed(bytes, 4);
    default:
        *is_advance = false;
        return 0;
    }
}

/* Carries out what applies to code `offset` bytes behind the function's start. False when something is not
 * understood. */
static bool carry_out_until(struct bytes bytes, uint64_t offset, const struct common *common,
                            const struct state *initial, struct state *state) {
    struct state remembered[STATES_MAX];
    unsigned depth = 0;
    uint64_t here = 0;
    while (bytes.at < bytes.end && !bytes.is_bad) {
        unsigned instruction = (unsigned)read_fixed(&bytes, 1);
        bool is_advance;
        here += advance_of(&bytes, instruction, &is_advance) * common->code_align;
        if (here > offset) {
            break;
        }
        if (is_advance) {
            continue;
        }
        if ((instruction & 0xC0) == CFA_OFFSET) {
            set_place(state, instruction & 0x3F, (int64_t)read_unsigned(&bytes) * common->data_align);
        } else if ((instruction & 0xC0) == CFA_RESTORE) {
            uint64_t which = instruction & 0x3F;
            set_place(state, which, which == REGISTER_BASE ? initial->base_at : initial->address_at);
        } else if (instruction == CFA_REMEMBER_STATE && depth < STATES_MAX) {
            remembered[depth++] = *state;
        } else if (instruction == CFA_RESTORE_STATE && depth > 0) {
            *state = remembered[--depth];
        } else if (!carry_out(&bytes, instruction, common, initial, state)) {
            return false;
        }
    }
    return !bytes.is_bad;
}

/* ---- the rule ---- */

static struct hak_unwind_rule rule_of_state(const struct state *state) {
    bool is_from_base = state->outer_register == REGISTER_BASE;
    struct hak_unwind_rule rule = {.is_from_base = is_from_base,
                                   .outer_words = (uint32_t)(state->outer_offset / WORD_BYTES),
                                   .base_words = (uint16_t)(-state->base_at / WORD_BYTES)};
    rule.is_outermost = state->is_outermost;
    rule.is_known = !state->is_strange && (is_from_base || state->outer_register == REGISTER_STACK) &&
                    state->outer_offset > 0 && state->outer_offset % WORD_BYTES == 0 &&
                    state->outer_offset / WORD_BYTES < UINT32_MAX && state->address_at == -WORD_BYTES &&
                    state->base_at <= 0 && state->base_at % WORD_BYTES == 0 &&
                    -state->base_at / WORD_BYTES < UINT16_MAX;
    return rule;
}

bool hak_unwind_can_read_tables(void) {
#if defined(__x86_64__) && defined(DLFO_STRUCT_HAS_EH_DBASE)
    return hak_check_libc.find_object != NULL;
#else
    return false;
#endif
}

struct hak_unwind_rule hak_unwind_read_rule(uintptr_t return_address) {
    const struct hak_unwind_rule none = {.is_known = 0};
    const struct hak_unwind_rule bare = {.is_bare = 1};
    uintptr_t address = return_address - 1; /* in the call: behind it another function may begin */
    const uint8_t *header = header_of(address);
    const uint8_t *start = header == NULL ? NULL : description_of(header, address);
    if (start == NULL) {
        return header == NULL ? bare : none;
    }
    struct bytes record = record_at(start);
    const uint8_t *id_at = record.at;
    uint64_t id = read_fixed(&record, 4);
    if (record.is_bad || id == 0) {
        return none;
    }
    struct common common = read_common(id_at - id);
    uintptr_t begin = (uintptr_t)record.at;
    begin += (uintptr_t)(intptr_t)(int32_t)read_fixed(&record, 4);
    uint64_t code_bytes = read_fixed(&record, 4);
    if (common.has_extra) {
        skip(&record, read_unsigned(&record));
    }
    if (common.instructions.is_bad || common.is_signal || record.is_bad || address - begin >= code_bytes) {
        return none;
    }
    struct state initial = {.outer_register = UINT64_MAX};
    if (!carry_out_until(common.instructions, UINT64_MAX, &common, &initial, &initial)) {
        return none;
    }
    struct state state = initial;
    if (!carry_out_until(record, address - begin, &common, &initial, &state)) {
        return none;
    }
    return rule_of_state(&state);
}
