/*
 * trace_text.h - a trace as text, a line a frame: number, function + offset, object + offset.
 *
 *     #0 read_config+0x2c (/usr/bin/program+0x11ac)
 *
 * The address is the last byte of the call, so that `addr2line -e /usr/bin/program 0x11ac` names the line
 * that called. Functions that the object does not export have no name here. Takes the loader's lock: no lock
 * of hakmem may be held.
 */
#ifndef HAK_CHECK_TRACE_TEXT_H
#define HAK_CHECK_TRACE_TEXT_H

#include "base/text.h"
#include "check/trace.h"

#define HAK_TRACE_LINE_BYTES_MAX 320u

/* Writes the trace to the descriptor, one write a line, or a line that says that there is none. */
void hak_trace_write(const struct hak_trace *trace, int fd);

/* Adds one frame, without number and newline. */
void hak_trace_put_frame(const void *return_address, struct text *line);

#endif
