/*
 * option_warnings.c - see option_warnings.h.
 */
#include "conf/option_warnings.h"
#include "conf/nearest.h"
#include "os/line.h"
#include "os/os.h"
#include <string.h>

#define WARNING_BYTES_MAX 320u
#define QUOTED_BYTES_MAX  80u /* of a name or value that is quoted in a warning */

/* Adds foreign text, cut, and with what could drive a terminal replaced. */
static void quote(struct text *line, const char *text, size_t bytes) {
    size_t shown_bytes = bytes < QUOTED_BYTES_MAX ? bytes : QUOTED_BYTES_MAX;
    for (size_t i = 0; i < shown_bytes; i++) {
        hak_text_char(line, text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
    }
    if (shown_bytes < bytes) {
        hak_text_string(line, "...");
    }
}

static void suggest(struct text *line, const char *prefix, const struct hak_nearest *nearest) {
    if (nearest->word[0] != '\0') {
        hak_text_string(line, " (did you mean ");
        hak_text_string(line, prefix);
        hak_text_string(line, nearest->word);
        hak_text_string(line, "?)");
    }
}

void hak_warn_unknown_option(const struct hak_setting *setting, int fd) {
    char buffer[WARNING_BYTES_MAX];
    struct text line = hak_line_over(buffer, sizeof buffer);
    struct hak_nearest nearest;
    hak_nearest_begin(&nearest, setting->name, setting->name_bytes);
    for (size_t i = 0; i < HAK_OPTION_ROWS; i++) {
        for (unsigned index = 0; index < hak_option_rows[i].count; index++) {
            char name[HAK_OPTION_NAME_BYTES];
            hak_option_name(&hak_option_rows[i], index, name);
            hak_nearest_offer(&nearest, name, strlen(name));
        }
    }
    hak_text_string(&line, "hakmem: unknown option " HAK_OPTION_PREFIX);
    quote(&line, setting->name, setting->name_bytes);
    suggest(&line, HAK_OPTION_PREFIX, &nearest);
    hak_line_write(&line, fd);
}

static void describe_number(struct text *line, const struct hak_option_row *row) {
    hak_text_string(line, "not a number");
    if (row->unit[0] != '\0') {
        hak_text_string(line, " of ");
        hak_text_string(line, row->unit);
    }
    hak_text_string(line, " from ");
    hak_text_decimal(line, row->minimum);
    hak_text_string(line, " to ");
    hak_text_decimal(line, row->maximum);
}

static void describe_choice(struct text *line, const struct hak_setting *setting) {
    struct hak_nearest nearest;
    const char *cursor = setting->row->words;
    const char *word;
    const char *separator = "not one of ";
    size_t bytes;
    hak_nearest_begin(&nearest, setting->value, strlen(setting->value));
    while (hak_option_next_word(&cursor, &word, &bytes)) {
        hak_text_string(line, separator);
        hak_text_bytes(line, word, bytes);
        hak_nearest_offer(&nearest, word, bytes);
        separator = ", ";
    }
    suggest(line, "", &nearest);
}

void hak_warn_option_value(const struct hak_options *options, const struct hak_setting *setting, int fd) {
    char buffer[WARNING_BYTES_MAX];
    struct text line = hak_line_over(buffer, sizeof buffer);
    const void *field = (const char *)options + hak_setting_offset(setting);
    hak_text_string(&line, "hakmem: " HAK_OPTION_PREFIX);
    quote(&line, setting->name, setting->name_bytes);
    hak_text_char(&line, '=');
    quote(&line, setting->value, strlen(setting->value));
    hak_text_string(&line, ": ");
    switch (setting->row->kind) {
    case HAK_OPTION_FLAG:
        hak_text_string(&line, "not 0 or 1; using ");
        hak_text_decimal(&line, *(const bool *)field);
        break;
    case HAK_OPTION_NUMBER:
    case HAK_OPTION_LIST:
        describe_number(&line, setting->row);
        hak_text_string(&line, "; using ");
        hak_text_decimal(&line, *(const uint32_t *)field);
        break;
    case HAK_OPTION_CHOICE:
        describe_choice(&line, setting);
        hak_text_string(&line, "; using ");
        hak_option_put_word(setting->row, *(const uint32_t *)field, &line);
        break;
    case HAK_OPTION_PATH:
        hak_text_string(&line, "longer than ");
        hak_text_decimal(&line, HAK_OPTION_PATH_BYTES - 1);
        hak_text_string(&line, " characters; using none");
        break;
    }
    hak_line_write(&line, fd);
}

void hak_warn_options_closed(int fd) {
    static const char line[] = "hakmem: mprotect failed: the settings in the environment are not in force\n";
    hak_os_write(fd, line, sizeof line - 1);
}

static void warn(const char *name, const char *what, int fd) {
    char buffer[WARNING_BYTES_MAX];
    struct text line = hak_line_over(buffer, sizeof buffer);
    hak_text_string(&line, "hakmem: " HAK_OPTION_PREFIX);
    hak_text_string(&line, name);
    hak_text_string(&line, ": ");
    hak_text_string(&line, what);
    hak_line_write(&line, fd);
}

void hak_warn_other_malloc(const char *name, int fd) {
    warn(name, "another malloc stands before hakmem's; what it does not hand on is not seen", fd);
}

void hak_warn_no_helper(int fd) {
    warn("BACKGROUND", "no thread can be had; nothing is given back but by the program's own", fd);
}

void hak_warn_without_effect(const struct hak_options *options, int fd) {
    if (options->check_leaks != 0 && !options->check) {
        warn("CHECK_LEAKS", "nothing is listed without HAKMEM_CHECK=1", fd);
    }
    if (options->guard_sample != 0 && options->check) {
        warn("GUARD_SAMPLE", "none is sampled with HAKMEM_CHECK=1, which looks at all", fd);
    }
    if (options->zero_on_free && options->check) {
        warn("ZERO_ON_FREE", "not zeroed with HAKMEM_CHECK=1, which fills with 0xDF", fd);
    }
}
