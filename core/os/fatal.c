/*
 * fatal.c - see fatal.h. Composes in a stack buffer, writes with one write(2), aborts.
 */
#include "os/fatal.h"
#include "base/assert.h"
#include "os/line.h"
#include <stdlib.h>
#include <unistd.h>

#define LINE_BYTES_MAX 256u

void (*hak_fatal_explain)(const void *pointer);
int (*hak_fatal_find_fd)(void);

/* Arrays, not pointers: these would be relocations, which every process pays for. */
static const char fault_texts[][28] = {
    [HAK_FAULT_DOUBLE_FREE] = "double free of",          [HAK_FAULT_INVALID_POINTER] = "invalid pointer",
    [HAK_FAULT_NOT_OURS] = "pointer not from this heap", [HAK_FAULT_HEADER_DAMAGED] = "header damaged at",
    [HAK_FAULT_USE_OF_FREED] = "use of freed block",     [HAK_FAULT_OVERFLOW] = "write past the end of",
    [HAK_FAULT_UNDERFLOW] = "write before the start of", [HAK_FAULT_WRITE_AFTER_FREE] = "write after free to",
    [HAK_FAULT_WRONG_SIZE] = "wrong size for",           [HAK_FAULT_WRONG_ALIGNMENT] = "wrong alignment for",
};

int hak_fatal_fd(void) {
    return hak_fatal_find_fd != NULL ? hak_fatal_find_fd() : STDERR_FILENO;
}

HAK_NORETURN static void write_and_abort(struct text *line) {
    hak_line_write(line, hak_fatal_fd());
    abort();
}

HAK_COLD void hak_fatal_line(const char *function, enum hak_fault fault, const void *pointer,
                             size_t block_bytes) {
    char buffer[LINE_BYTES_MAX];
    struct text line = hak_line_over(buffer, sizeof buffer);
    hak_text_string(&line, "hakmem: ");
    hak_text_string(&line, function);
    hak_text_string(&line, "(): ");
    hak_text_string(&line, fault_texts[fault]);
    hak_text_char(&line, ' ');
    hak_text_hex(&line, (uintptr_t)pointer);
    if (block_bytes != 0) {
        hak_text_string(&line, ", ");
        hak_text_decimal(&line, block_bytes);
        hak_text_string(&line, "-byte block");
    }
    hak_line_write(&line, hak_fatal_fd());
}

HAK_COLD void hak_fatal_pointer(const char *function, enum hak_fault fault, const void *pointer,
                                size_t block_bytes) {
    hak_fatal_line(function, fault, pointer, block_bytes);
    if (hak_fatal_explain != NULL) {
        hak_fatal_explain(pointer);
    }
    abort();
}

HAK_COLD void hak_fatal_text(const char *text) {
    char buffer[LINE_BYTES_MAX];
    struct text line = hak_line_over(buffer, sizeof buffer);
    hak_text_string(&line, "hakmem: ");
    hak_text_string(&line, text);
    write_and_abort(&line);
}

HAK_COLD void hak_assert_failed(const char *text, const char *file, int line_number) {
    char buffer[LINE_BYTES_MAX];
    struct text line = hak_line_over(buffer, sizeof buffer);
    hak_text_string(&line, "hakmem: assertion failed: ");
    hak_text_string(&line, text);
    hak_text_string(&line, " (");
    hak_text_string(&line, file);
    hak_text_char(&line, ':');
    hak_text_decimal(&line, (uint64_t)line_number);
    hak_text_char(&line, ')');
    write_and_abort(&line);
}
