/*
 * option_rows.c - see option_rows.h.
 */
#include "conf/option_rows.h"

#define AT(field) (uint32_t) offsetof(struct hak_options, field)

#define FLAG_ROW(name_, field, initial_, help_)                                                              \
    {.name = #name_,                                                                                         \
     .help = (help_),                                                                                        \
     .kind = HAK_OPTION_FLAG,                                                                                \
     .offset_bytes = AT(field),                                                                              \
     .count = 1,                                                                                             \
     .initial = (initial_),                                                                                  \
     .maximum = 1},
#define NUMBER_ROW(name_, field, initial_, min, max, unit_, help_)                                           \
    {.name = #name_,                                                                                         \
     .unit = unit_,                                                                                          \
     .help = help_,                                                                                          \
     .kind = HAK_OPTION_NUMBER,                                                                              \
     .offset_bytes = AT(field),                                                                              \
     .count = 1,                                                                                             \
     .initial = (initial_),                                                                                  \
     .minimum = (min),                                                                                       \
     .maximum = (max)},
#define LIST_ROW(name_, field, n, initial_, min, max, unit_, help_)                                          \
    {.name = #name_,                                                                                         \
     .unit = unit_,                                                                                          \
     .help = help_,                                                                                          \
     .kind = HAK_OPTION_LIST,                                                                                \
     .offset_bytes = AT(field),                                                                              \
     .count = (n),                                                                                           \
     .initial = (initial_),                                                                                  \
     .minimum = (min),                                                                                       \
     .maximum = (max)},
#define CHOICE_ROW(name_, field, initial_, words_, help_)                                                    \
    {.name = #name_,                                                                                         \
     .words = words_,                                                                                        \
     .help = help_,                                                                                          \
     .kind = HAK_OPTION_CHOICE,                                                                              \
     .offset_bytes = AT(field),                                                                              \
     .count = 1,                                                                                             \
     .initial = (initial_)},
#define PATH_ROW(name_, field, help_)                                                                        \
    {.name = #name_, .help = help_, .kind = HAK_OPTION_PATH, .offset_bytes = AT(field), .count = 1},

const struct hak_option_row hak_option_rows[HAK_OPTION_ROWS] = {
    HAK_OPTION_TABLE(FLAG_ROW, NUMBER_ROW, LIST_ROW, CHOICE_ROW, PATH_ROW)};

/* An array that its text fills exactly has no terminating zero; a longer text does not compile. */
#define CHECK_TEXTS(name_, words_, unit_, help_)                                                             \
    _Static_assert(sizeof(#name_) <= sizeof hak_option_rows[0].name, "the option's name is too long");       \
    _Static_assert(sizeof(words_) <= sizeof hak_option_rows[0].words, "the option's words are too long");    \
    _Static_assert(sizeof(unit_) <= sizeof hak_option_rows[0].unit, "the option's unit is too long");        \
    _Static_assert(sizeof(help_) <= sizeof hak_option_rows[0].help, "the option's help is too long");
#define CHECK_BOUNDS(initial_, min, max)                                                                     \
    _Static_assert((initial_) - (min) <= (max) - (min), "the default must be within the bounds");
#define CHECK_FLAG(name_, field, initial_, help_) CHECK_TEXTS(name_, "", "", help_)
#define CHECK_NUMBER(name_, field, initial_, min, max, unit_, help_)                                         \
    CHECK_TEXTS(name_, "", unit_, help_) CHECK_BOUNDS(initial_, min, max)
#define CHECK_LIST(name_, field, n, initial_, min, max, unit_, help_)                                        \
    CHECK_TEXTS(name_, "", unit_, help_) CHECK_BOUNDS(initial_, min, max)
#define CHECK_CHOICE(name_, field, initial_, words_, help_) CHECK_TEXTS(name_, words_, "", help_)
#define CHECK_PATH(name_, field, help_)                     CHECK_TEXTS(name_, "", "", help_)

HAK_OPTION_TABLE(CHECK_FLAG, CHECK_NUMBER, CHECK_LIST, CHECK_CHOICE, CHECK_PATH)

void hak_option_name(const struct hak_option_row *row, unsigned index, char name[HAK_OPTION_NAME_BYTES]) {
    struct text text = hak_text_over(name, HAK_OPTION_NAME_BYTES - 1);
    hak_text_string(&text, row->name);
    if (row->kind == HAK_OPTION_LIST) {
        hak_text_decimal(&text, index);
    }
    name[text.used_bytes] = '\0';
}

bool hak_option_next_word(const char **cursor, const char **word, size_t *bytes) {
    const char *start = *cursor;
    size_t length = 0;
    if (*start == '\0') {
        return false;
    }
    while (start[length] != '\0' && start[length] != '|') {
        length++;
    }
    *word = start;
    *bytes = length;
    *cursor = start + length + (start[length] == '|');
    return true;
}

void hak_option_put_word(const struct hak_option_row *row, uint32_t index, struct text *text) {
    const char *cursor = row->words;
    const char *word;
    size_t bytes;
    for (uint32_t i = 0; hak_option_next_word(&cursor, &word, &bytes); i++) {
        if (i == index) {
            hak_text_bytes(text, word, bytes);
        }
    }
}

void hak_option_put_title(const struct hak_option_row *row, struct text *text) {
    hak_text_string(text, HAK_OPTION_PREFIX);
    hak_text_string(text, row->name);
    if (row->kind == HAK_OPTION_LIST) {
        hak_text_string(text, "<k>");
    }
}

void hak_option_put_default(const struct hak_option_row *row, struct text *text) {
    switch (row->kind) {
    case HAK_OPTION_PATH:
        hak_text_string(text, "off");
        break;
    case HAK_OPTION_CHOICE:
        hak_option_put_word(row, row->initial, text);
        break;
    default:
        hak_text_decimal(text, row->initial);
        break;
    }
}

static void put_range(uint32_t minimum, uint32_t maximum, struct text *text) {
    hak_text_decimal(text, minimum);
    hak_text_string(text, "..");
    hak_text_decimal(text, maximum);
}

void hak_option_put_values(const struct hak_option_row *row, struct text *text) {
    switch (row->kind) {
    case HAK_OPTION_FLAG:
        hak_text_string(text, "0|1");
        break;
    case HAK_OPTION_PATH:
        hak_text_string(text, "path, - for stderr, off");
        break;
    case HAK_OPTION_CHOICE:
        hak_text_string(text, row->words);
        break;
    case HAK_OPTION_NUMBER:
    case HAK_OPTION_LIST:
        put_range(row->minimum, row->maximum, text);
        if (row->unit[0] != '\0') {
            hak_text_char(text, ' ');
            hak_text_string(text, row->unit);
        }
        if (row->kind == HAK_OPTION_LIST) {
            hak_text_string(text, ", k ");
            put_range(0, row->count - 1, text);
        }
        break;
    }
}
