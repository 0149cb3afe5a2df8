/*
 * option_warnings.h - an entry of the environment that is no option or no value of one, said in one line.
 *
 * Foreign text is cut, and what could drive a terminal is replaced. No allocation, no stdio.
 */
#ifndef HAK_CONF_OPTION_WARNINGS_H
#define HAK_CONF_OPTION_WARNINGS_H

#include "conf/option_rows.h"

/* One HAKMEM_ entry of an environment, and the option that it names. */
struct hak_setting {
    const char *name; /* without prefix, not ended by a zero */
    size_t name_bytes;
    const char *value;
    const struct hak_option_row *row; /* NULL: no option has this name */
    unsigned index;                   /* in a LIST, else 0 */
};

/* Where in struct hak_options the setting's field is: a bool for a FLAG, characters for a PATH, else
 * uint32_t.
 */
HAK_INLINE size_t hak_setting_offset(const struct hak_setting *setting) {
    return setting->row->offset_bytes + setting->index * sizeof(uint32_t);
}

/* `hakmem: unknown option NAME`, with the name that is most like it. */
HAK_COLD void hak_warn_unknown_option(const struct hak_setting *setting, int fd);

/* `hakmem: NAME=VALUE: what it is not; using what stays in force`. */
HAK_COLD void hak_warn_option_value(const struct hak_options *options, const struct hak_setting *setting,
                                    int fd);

/* That the options' OS page could not be opened for writing, so that no setting counts. */
HAK_COLD void hak_warn_options_closed(int fd);

/* That another malloc stands before hakmem's, so that the option of that name, without prefix, sees less. */
HAK_COLD void hak_warn_other_malloc(const char *name, int fd);

/* That HAKMEM_BACKGROUND=1 has no thread. */
HAK_COLD void hak_warn_no_helper(int fd);

/* HAKMEM_CHECK_LEAKS without HAKMEM_CHECK=1, and GUARD_SAMPLE and ZERO_ON_FREE with it, which do nothing
 * then. */
HAK_COLD void hak_warn_without_effect(const struct hak_options *options, int fd);

#endif
