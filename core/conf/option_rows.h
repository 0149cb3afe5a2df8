/*
 * option_rows.h - the option table as data, for the parser, the help text and the README.
 *
 * Texts are arrays, not pointers: the rows then need no relocation, and a process that sets no option never
 * touches their pages.
 */
#ifndef HAK_CONF_OPTION_ROWS_H
#define HAK_CONF_OPTION_ROWS_H

#include "base/text.h"
#include "conf/options.h"

#define HAK_OPTION_PREFIX     "HAKMEM_"
#define HAK_OPTION_NAME_BYTES 32u /* a name without prefix, with its index and terminating zero */

enum hak_option_kind {
    HAK_OPTION_FLAG,   /* bool */
    HAK_OPTION_NUMBER, /* uint32_t */
    HAK_OPTION_LIST,   /* uint32_t[count] */
    HAK_OPTION_CHOICE, /* uint32_t: index of a word */
    HAK_OPTION_PATH,   /* char[HAK_OPTION_PATH_BYTES] */
};

/* Const. One option; a LIST stands for `count` names, NAME0 to NAME(count - 1). */
struct hak_option_row {
    char name[20];
    char unit[12];
    char words[36]; /* CHOICE: separated by | */
    char help[96];
    enum hak_option_kind kind;
    uint32_t offset_bytes; /* of the field in struct hak_options */
    uint32_t count;        /* 1 except for a LIST */
    uint32_t initial;
    uint32_t minimum;
    uint32_t maximum;
};

#define HAK_OPTION_COUNT_ROW(...) +1
enum {
    HAK_OPTION_ROWS = 0 HAK_OPTION_TABLE(HAK_OPTION_COUNT_ROW, HAK_OPTION_COUNT_ROW, HAK_OPTION_COUNT_ROW,
                                         HAK_OPTION_COUNT_ROW, HAK_OPTION_COUNT_ROW)
};

extern const struct hak_option_row hak_option_rows[HAK_OPTION_ROWS];

/* The name without prefix of a row's `index`-th option. */
void hak_option_name(const struct hak_option_row *row, unsigned index, char name[HAK_OPTION_NAME_BYTES]);

/* Splits `words` at its bars: the word at *cursor and its length; false at the end. *cursor starts at it. */
bool hak_option_next_word(const char **cursor, const char **word, size_t *bytes);

/* Adds a CHOICE's word of that index. */
void hak_option_put_word(const struct hak_option_row *row, uint32_t index, struct text *text);

/* The columns of a table: HAKMEM_NAME (of a LIST, NAME<k>), the default, the values that are taken. */
void hak_option_put_title(const struct hak_option_row *row, struct text *text);
void hak_option_put_default(const struct hak_option_row *row, struct text *text);
void hak_option_put_values(const struct hak_option_row *row, struct text *text);

#endif
