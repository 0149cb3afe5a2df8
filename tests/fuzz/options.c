/*
 * options.c - a fuzzing target: the parser of the options against a second one, written from their
 * description.
 *
 * An input is an environment, an entry a line. An entry whose first byte is 128 or more stands for HAKMEM_
 * and the name with that number, so that the fuzzer need not guess names; a byte of 1 stands for many
 * letters. Compared are every field, and the beginning of every warning in its order; warnings are short
 * lines of printable characters, and names that they suggest exist.
 */
#include "conf/options.h"
#include "conf/option_rows.h"
#include "fuzz/kernel.h"
#include "fuzz/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES_MAX    64u
#define LONG_BYTE      1    /* in an input: that many letters */
#define LONG_BYTES     340u /* three of them and three more letters are a path of the greatest length */
#define NAMES_MAX      128u
#define QUOTED_MAX     80u
#define LINE_BYTES_MAX 320u
#define SAID_BYTES_MAX (ENTRIES_MAX * LINE_BYTES_MAX + 1)
#define HELP_BYTES_MAX 8192u

static char *environment[ENTRIES_MAX + 1];
static char said[SAID_BYTES_MAX];
static const char *unread; /* warnings that no refused entry has accounted for yet */

/* ---- the second parser ------------------------------------------------------------------------------ */

struct found {
    const struct hak_option_row *row;
    unsigned index;
};

/* Every name that there is, made once. */
static struct {
    char text[64];
    size_t bytes;
    struct found found;
} names[NAMES_MAX];
static unsigned name_count;

static void make_names(void) {
    for (size_t i = 0; i < HAK_OPTION_ROWS; i++) {
        const struct hak_option_row *row = &hak_option_rows[i];
        for (unsigned index = 0; index < row->count; index++, name_count++) {
            FUZZ_CHECK(name_count < NAMES_MAX);
            snprintf(names[name_count].text, sizeof names[0].text,
                     row->kind == HAK_OPTION_LIST ? "%s%u" : "%s", row->name, index);
            names[name_count].bytes = strlen(names[name_count].text);
            names[name_count].found = (struct found){row, index};
        }
    }
}

/* The option of the name, or row NULL. */
static struct found find(const char *name, size_t name_bytes) {
    for (unsigned i = 0; i < name_count; i++) {
        if (names[i].bytes == name_bytes && memcmp(names[i].text, name, name_bytes) == 0) {
            return names[i].found;
        }
    }
    return (struct found){NULL, 0};
}

static bool read_number(const char *value, uint32_t minimum, uint32_t maximum, uint32_t *number) {
    size_t digits = strspn(value, "0123456789");
    unsigned long long wide = strtoull(value, NULL, 10);
    *number = (uint32_t)wide;
    return digits != 0 && value[digits] == '\0' && wide >= minimum && wide <= maximum;
}

static bool read_word(const char *value, const char *words, uint32_t *number) {
    char copy[64];
    char *rest = copy;
    snprintf(copy, sizeof copy, "%s", words);
    *number = 0;
    for (char *word; (word = strsep(&rest, "|")) != NULL; ++*number) {
        if (strcmp(word, value) == 0) {
            return true;
        }
    }
    return false;
}

/* Puts the value where it belongs; false when it is none of the option's. */
static bool put(struct hak_options *options, struct found found, const char *value) {
    char *field = (char *)options + found.row->offset_bytes;
    uint32_t number = 0;
    switch (found.row->kind) {
    case HAK_OPTION_PATH:
        if (strcmp(value, "0") == 0 || strcmp(value, "off") == 0) {
            value = "";
        } else if (strcmp(value, "1") == 0) {
            value = "-";
        }
        if (strlen(value) >= HAK_OPTION_PATH_BYTES) {
            return false;
        }
        strcpy(field, value);
        return true;
    case HAK_OPTION_FLAG:
        if (!read_number(value, 0, 1, &number)) {
            return false;
        }
        *(bool *)field = number == 1;
        return true;
    case HAK_OPTION_CHOICE:
        if (!read_word(value, found.row->words, &number)) {
            return false;
        }
        break;
    default:
        if (!read_number(value, found.row->minimum, found.row->maximum, &number)) {
            return false;
        }
        break;
    }
    ((uint32_t *)field)[found.index] = number;
    return true;
}

/* ---- warnings --------------------------------------------------------------------------------------- */

/* The text as a warning quotes it. */
static void expect_quoted(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes && i < QUOTED_MAX; i++) {
        FUZZ_CHECK(*unread++ == (text[i] >= 32 && text[i] < 127 ? text[i] : '?'));
    }
    if (bytes > QUOTED_MAX) {
        FUZZ_CHECK(strncmp(unread, "...", 3) == 0);
        unread += 3;
    }
}

static void expect(const char *text) {
    FUZZ_CHECK(strncmp(unread, text, strlen(text)) == 0);
    unread += strlen(text);
}

static void check_suggestion(const char *line, size_t bytes) {
    static const char begin[] = "(did you mean HAKMEM_";
    const char *suggestion = memmem(line, bytes, begin, sizeof begin - 1);
    if (suggestion != NULL) {
        suggestion += sizeof begin - 1;
        FUZZ_CHECK(find(suggestion, strcspn(suggestion, "?")).row != NULL);
    }
}

/* Reads the line that must have been said about the entry. */
static void expect_warning(const char *name, size_t name_bytes, const char *value, bool is_known) {
    const char *line = unread;
    expect(is_known ? "hakmem: HAKMEM_" : "hakmem: unknown option HAKMEM_");
    expect_quoted(name, name_bytes);
    if (is_known) {
        expect("=");
        expect_quoted(value, strlen(value));
        expect(": ");
    }
    size_t rest_bytes = strcspn(unread, "\n");
    check_suggestion(unread, rest_bytes);
    unread += rest_bytes;
    expect("\n");
    FUZZ_CHECK((size_t)(unread - line) <= LINE_BYTES_MAX);
    for (const char *c = line; c < unread - 1; c++) {
        FUZZ_CHECK(*c >= 32 && *c < 127);
    }
}

/* ---- one input -------------------------------------------------------------------------------------- */

static bool is_profile(const struct hak_option_row *row) {
    return strcmp(row->name, "TINY_PROFILE") == 0;
}

/* Whether this input sets HAKMEM_RETAIN_MB, by itself or by a profile. */
static bool is_said_what_stays;

/* Pass 0: the profile, 1: unknown names and single options, 2: lists. */
static void run_pass(unsigned pass, struct hak_options *options) {
    for (char **entry = environment; *entry != NULL; entry++) {
        const char *name = *entry + strlen(HAK_OPTION_PREFIX);
        const char *equals = strchr(*entry, '=');
        if (strncmp(*entry, HAK_OPTION_PREFIX, strlen(HAK_OPTION_PREFIX)) != 0 || equals == NULL ||
            equals[1] == '\0') {
            continue;
        }
        size_t name_bytes = (size_t)(equals - name);
        if ((name_bytes == 13 && strncmp(name, "BUILD_RELEASE", 13) == 0) ||
            (name_bytes == 14 && strncmp(name, "DEBUG_COUNTERS", 14) == 0)) {
            continue;
        }
        struct found found = find(name, name_bytes);
        unsigned its_pass = found.row == NULL                    ? 1
                            : found.row->kind == HAK_OPTION_LIST ? 2
                            : is_profile(found.row)              ? 0
                                                                 : 1;
        if (its_pass == pass && (found.row == NULL || !put(options, found, equals + 1))) {
            expect_warning(name, name_bytes, equals + 1, found.row != NULL);
        } else if (its_pass == pass) {
            is_said_what_stays |= found.row->offset_bytes == offsetof(struct hak_options, retain_mb);
        }
    }
}

static void set_profile(struct hak_options *options) {
#define SET(profile, field, value)                                                                           \
    if (options->tiny_profile == (profile)) {                                                                \
        options->field = (value);                                                                            \
    }
    HAK_PROFILE_TABLE(SET)
}

/* An entry on the heap, cut to its length, so that a tool sees who reads past its end. */
static char *entry_of(const char *text, size_t bytes) {
    char prefix[64] = "";
    unsigned number = bytes > 0 && (unsigned char)*text >= 128 ? (unsigned char)*text - 128u : UINT32_MAX;
    if (number != UINT32_MAX) {
        const struct hak_option_row *row = &hak_option_rows[number % HAK_OPTION_ROWS];
        snprintf(prefix, sizeof prefix, "HAKMEM_%s", row->name);
        text++;
        bytes--;
    }
    size_t prefix_bytes = strlen(prefix);
    char *entry = malloc(prefix_bytes + bytes * LONG_BYTES + 1);
    FUZZ_CHECK(entry != NULL);
    memcpy(entry, prefix, prefix_bytes);
    size_t used_bytes = prefix_bytes;
    for (size_t i = 0; i < bytes; i++) {
        size_t copies = text[i] == LONG_BYTE ? LONG_BYTES : 1;
        memset(entry + used_bytes, copies == 1 ? text[i] : 'p', copies);
        used_bytes += copies;
    }
    entry[used_bytes] = '\0';
    char *cut = realloc(entry, used_bytes + 1);
    FUZZ_CHECK(cut != NULL);
    return cut;
}

static void set_environment(const char *text, size_t bytes) {
    unsigned count = 0;
    while (bytes != 0 && count < ENTRIES_MAX) {
        const char *end = memchr(text, '\n', bytes);
        size_t entry_bytes = end != NULL ? (size_t)(end - text) : bytes;
        environment[count++] = entry_of(text, entry_bytes);
        size_t taken_bytes = entry_bytes + (end != NULL);
        text += taken_bytes;
        bytes -= taken_bytes;
    }
    environment[count] = NULL;
}

static void check_help(void) {
    static char help[HELP_BYTES_MAX];
    kernel_capture(help, sizeof help);
    hak_options_help(2);
    kernel_capture(NULL, 0);
    for (size_t i = 0; i < HAK_OPTION_ROWS; i++) {
        FUZZ_CHECK(strstr(help, hak_option_rows[i].name) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static struct hak_options defaults, read, expected;
    static bool has_defaults;
    if (!has_defaults) {
        make_names();
        check_help();
        char *nothing = NULL;
        hak_options_parse(&hak_options, &nothing, 1, 2); /* writes nothing: the page is read-only */
        for (size_t i = 0; i < HAK_OPTION_ROWS; i++) {
            const struct hak_option_row *row = &hak_option_rows[i];
            for (unsigned k = 0;
                 k < row->count && row->kind != HAK_OPTION_PATH && row->kind != HAK_OPTION_FLAG; k++) {
                ((uint32_t *)((char *)&defaults + row->offset_bytes))[k] = row->initial;
            }
            if (row->kind == HAK_OPTION_FLAG) {
                *((bool *)&defaults + row->offset_bytes) = row->initial != 0;
            }
        }
        has_defaults = true;
    }
    memcpy(&read, &defaults, sizeof read);
    memcpy(&expected, &defaults, sizeof expected);
    set_environment((const char *)data, bytes);
    kernel_capture(said, sizeof said);
    hak_options_parse(&read, environment, 1, 2);
    kernel_capture(NULL, 0);

    unread = said;
    run_pass(0, &expected);
    set_profile(&expected);
    is_said_what_stays = expected.retain_mb != defaults.retain_mb;
    run_pass(1, &expected);
    if (is_said_what_stays) {
        expected.lasting_mb = expected.retain_mb;
    }
    for (unsigned i = 0; i < HAK_CLASS_COUNT; i++) {
        expected.tiny_prewarm_blocks[i] = expected.tiny_prewarm_all;
    }
    run_pass(2, &expected);
    FUZZ_CHECK(*unread == '\0');
    FUZZ_CHECK(memcmp(&read, &expected, sizeof read) == 0);
    for (char **entry = environment; *entry != NULL; entry++) {
        free(*entry);
    }
    return 0;
}
