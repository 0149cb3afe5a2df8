/*
 * report.c - see report.h.
 */
#include "check/report.h"
#include "base/config.h"
#include "check/guarded.h"
#include "check/slots.h"
#include "check/trace_text.h"
#include "os/fatal.h"
#include "os/line.h"
#include <stdlib.h>

#define LINE_BYTES_MAX 256u

/* ---- finding ---- */

static bool is_damaged(struct hak_finding *finding, enum hak_fault fault, const uint8_t *start,
                       const uint8_t *end, uint8_t fill) {
    finding->fault = fault;
    finding->damage = hak_zone_damage(start, end, fill);
    return finding->damage.at != NULL;
}

bool hak_finding_in(const struct hak_record *record, struct hak_finding *finding) {
    finding->record = *record;
    if (record->state == HAK_RECORD_QUARANTINED && record->kind == HAK_RECORD_INLINE) {
        struct hak_zones zones = hak_zones_of(record);
        return is_damaged(finding, HAK_FAULT_WRITE_AFTER_FREE, zones.block, zones.behind, HAK_FILL_FREED);
    }
    if (record->state == HAK_RECORD_LIVE || record->state == HAK_RECORD_FREEING) {
        struct hak_zones zones = hak_zones_of(record);
        return is_damaged(finding, HAK_FAULT_OVERFLOW, zones.end, zones.behind, HAK_FILL_RED) ||
               is_damaged(finding, HAK_FAULT_UNDERFLOW, zones.before, zones.block, HAK_FILL_RED);
    }
    return false; /* it cannot be touched, or is somebody else's */
}

/* A block that is being freed is its thread's to look at. */
static int visit_for_finding(const struct hak_record *record, void *finding) {
    return record->state != HAK_RECORD_FREEING && hak_finding_in(record, finding);
}

bool hak_finding_anywhere(struct hak_finding *finding) {
    return hak_records_visit(visit_for_finding, finding) != 0;
}

/* ---- writing ---- */

static struct text begin_line(char buffer[LINE_BYTES_MAX]) {
    struct text line = hak_line_over(buffer, LINE_BYTES_MAX);
    hak_text_string(&line, "  ");
    return line;
}

static void write_who(const char *what, uint32_t thread, const struct hak_trace *trace) {
    char buffer[LINE_BYTES_MAX];
    struct text line = begin_line(buffer);
    hak_text_string(&line, what);
    if (thread != 0) {
        hak_text_string(&line, " by thread ");
        hak_text_decimal(&line, thread);
    }
    hak_line_write(&line, hak_fatal_fd());
    hak_trace_write(trace, hak_fatal_fd());
}

static void write_here(const struct hak_trace *here) {
    write_who("noticed here", 0, here);
}

static void write_owners(const struct hak_record *record) {
    write_who("allocated", record->allocating_thread, record->allocated);
    if (record->state != HAK_RECORD_LIVE) {
        write_who("freed", record->freeing_thread, record->freed);
    }
}

static void write_damage(const struct hak_finding *finding) {
    char buffer[LINE_BYTES_MAX];
    struct text line = begin_line(buffer);
    uintptr_t at = (uintptr_t)finding->damage.at;
    uintptr_t block = finding->record.address;
    hak_text_decimal(&line, finding->damage.bytes);
    hak_text_string(&line, finding->damage.bytes == 1 ? " byte is" : " bytes are");
    hak_text_string(&line, " not as left, the first ");
    if (finding->fault == HAK_FAULT_OVERFLOW) {
        hak_text_decimal(&line, at - block - finding->record.bytes);
        hak_text_string(&line, " bytes past the end: ");
    } else if (finding->fault == HAK_FAULT_UNDERFLOW) {
        hak_text_decimal(&line, block - at);
        hak_text_string(&line, " bytes before the start: ");
    } else {
        bool is_behind = at - block >= finding->record.bytes;
        hak_text_decimal(&line, is_behind ? at - block - finding->record.bytes : at - block);
        hak_text_string(&line, is_behind ? " bytes past the end: " : " bytes inside: ");
    }
    hak_text_hex(&line, at);
    hak_text_string(&line, " holds ");
    hak_text_hex(&line, *finding->damage.at);
    hak_line_write(&line, hak_fatal_fd());
}

void hak_finding_write(const char *function, const struct hak_finding *finding) {
    hak_fatal_line(function, finding->fault, (const void *)finding->record.address, finding->record.bytes);
    if (finding->damage.at != NULL) {
        write_damage(finding);
    }
    write_here(hak_trace_take());
    struct hak_record record = finding->record;
    if (record.state == HAK_RECORD_FREEING) {
        record.state = HAK_RECORD_LIVE; /* who frees it is who noticed */
    }
    write_owners(&record);
}

void hak_finding_die(const char *function, const struct hak_finding *finding) {
    hak_finding_write(function, finding);
    abort();
}

/* ---- explaining a pointer ---- */

struct search {
    uintptr_t pointer;
    struct hak_record found;
};

static int visit_for_pointer(const struct hak_record *record, void *context) {
    struct search *search = context;
    bool is_inside = record->state != HAK_RECORD_RELEASED && search->pointer > record->address &&
                     search->pointer - record->address < record->bytes + HAK_ZONE_BYTES_MIN;
    if (is_inside) {
        search->found = *record;
    }
    return is_inside;
}

bool hak_report_find(const void *pointer, struct hak_record *record) {
    struct search search = {.pointer = (uintptr_t)pointer};
    bool is_known =
        hak_records_get(pointer, &search.found) || hak_records_visit(visit_for_pointer, &search) != 0;
    *record = search.found;
    return is_known;
}

void hak_report_explain(const void *pointer) {
    struct hak_record found;
    bool is_known = hak_report_find(pointer, &found);
    if (is_known && found.address != (uintptr_t)pointer) {
        char buffer[LINE_BYTES_MAX];
        struct text line = begin_line(buffer);
        uintptr_t offset = (uintptr_t)pointer - found.address;
        bool is_behind = offset >= found.bytes;
        hak_text_string(&line, "it points ");
        hak_text_decimal(&line, is_behind ? offset - found.bytes : offset);
        hak_text_string(&line, is_behind ? " bytes past the end of the block " : " bytes into the block ");
        hak_text_hex(&line, found.address);
        hak_text_string(&line, " of ");
        hak_text_decimal(&line, found.bytes);
        hak_text_string(&line, " bytes");
        hak_line_write(&line, hak_fatal_fd());
    }
    write_here(hak_trace_take());
    if (is_known) {
        write_owners(&found);
    }
}

/* ---- faults at guard pages ---- */

/* From the nearest byte of the block; 0 inside it. */
static uintptr_t distance_of(const struct hak_record *record, uintptr_t pointer) {
    uintptr_t end = record->address + record->bytes;
    return pointer < record->address ? record->address - pointer : pointer >= end ? pointer - end + 1 : 0;
}

/* In the same mapping, or both among slots and not far from each other. */
static bool is_around(const struct hak_record *record, uintptr_t pointer) {
    struct hak_guarded_range range = hak_guarded_range(record);
    if (hak_slot_record(range.start) != NULL) {
        return hak_slot_record((const void *)pointer) != NULL &&
               distance_of(record, pointer) < HAK_UNIT_BYTES;
    }
    return pointer - (uintptr_t)range.mapping < range.mapping_bytes;
}

static int visit_for_access(const struct hak_record *record, void *context) {
    struct search *search = context;
    if (record->kind == HAK_RECORD_GUARDED && record->state != HAK_RECORD_RELEASED &&
        is_around(record, search->pointer) &&
        (search->found.address == 0 ||
         distance_of(record, search->pointer) < distance_of(&search->found, search->pointer))) {
        search->found = *record;
    }
    return 0;
}

bool hak_report_find_access(const void *address, struct hak_record *record) {
    struct search search = {.pointer = (uintptr_t)address};
    (void)hak_records_visit_soon(visit_for_access, &search);
    *record = search.found;
    return search.found.address != 0;
}

void hak_report_access(const struct hak_record *record, const void *address, enum hak_access access,
                       const struct hak_trace *here) {
    static const char names[][8] = {
        [HAK_ACCESS_UNKNOWN] = "access", [HAK_ACCESS_READ] = "read", [HAK_ACCESS_WRITE] = "write"};
    char buffer[LINE_BYTES_MAX];
    struct text line = hak_line_over(buffer, sizeof buffer);
    uintptr_t pointer = (uintptr_t)address;
    uintptr_t block = record->address;
    uintptr_t end = block + record->bytes;
    bool is_before = pointer < block;
    bool is_behind = pointer >= end;
    hak_text_string(&line, "hakmem: SIGSEGV: ");
    hak_text_string(&line, names[access]);
    hak_text_char(&line, ' ');
    hak_text_decimal(&line, is_before ? block - pointer : is_behind ? pointer - end : pointer - block);
    hak_text_string(&line, is_before   ? " bytes before the start of "
                           : is_behind ? " bytes past the end of "
                                       : " bytes into ");
    hak_text_string(&line, record->state == HAK_RECORD_LIVE ? "" : "freed ");
    hak_text_hex(&line, block);
    hak_text_string(&line, ", ");
    hak_text_decimal(&line, record->bytes);
    hak_text_string(&line, "-byte block");
    hak_line_write(&line, hak_fatal_fd());
    write_here(here);
    write_owners(record);
}
