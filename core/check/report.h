/*
 * report.h - what checked mode says about a fault: what, where, how far outside, who allocated, who freed.
 *
 *     hakmem: free(): write past the end of 0x7f1b5c6004c0, 24-byte block
 *       3 bytes are not as they were left, the first 0 bytes past the end: 0x7f1b5c6004d8 holds 0x41
 *       noticed here
 *         #0 main+0x6b (/tmp/a+0x11da)
 *       allocated by thread 1
 *         #0 make_name+0x1c (/tmp/a+0x118c)
 *
 * Lines on stderr, no allocation. Frames are named by the loader: no lock of hakmem may be held.
 */
#ifndef HAK_CHECK_REPORT_H
#define HAK_CHECK_REPORT_H

#include "check/zones.h"
#include "os/fatal.h"

/* A fault that checked mode has found. */
struct hak_finding {
    enum hak_fault fault;
    struct hak_record record;
    struct hak_damage damage; /* of OVERFLOW, UNDERFLOW and WRITE_AFTER_FREE */
};

/* Looks at what surrounds a live block, or at a quarantined one's contents. False when all is as it should
 * be. */
bool hak_finding_in(const struct hak_record *record, struct hak_finding *finding);

/* The first finding in any block; false when there is none. */
bool hak_finding_anywhere(struct hak_finding *finding);

/* Writes the report. */
void hak_finding_write(const char *function, const struct hak_finding *finding);

/* The same and aborts. */
HAK_NORETURN void hak_finding_die(const char *function, const struct hak_finding *finding);

enum hak_access { HAK_ACCESS_UNKNOWN, HAK_ACCESS_READ, HAK_ACCESS_WRITE };

/* For a handler of SIGSEGV: the GUARDED block that the address is near to, or the freed one that it is in; of
 * two the nearer one. False when there is none. */
bool hak_report_find_access(const void *address, struct hak_record *record);

/* The report of a fault there that `here` made. */
void hak_report_access(const struct hak_record *record, const void *address, enum hak_access access,
                       const struct hak_trace *here);

/* The record of the block that starts at `pointer`, or else of one that reaches over it; false: there is
 * none. */
bool hak_report_find(const void *pointer, struct hak_record *record);

/*
 * What is known of the block that starts at or reaches over `pointer`, for lines that hak_fatal_pointer()
 * began: where in which block it points, who allocated it, who freed it, and where the program is now.
 */
void hak_report_explain(const void *pointer);

#endif
