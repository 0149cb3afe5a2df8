/*
 * options.c - see options.h: the defaults and the parser.
 *
 * Three passes over the environment, so that the order of its entries does not matter: the profile, which
 * sets defaults; the single options; the lists, whose default is the option "for all". No allocation, no
 * stdio, no locale; a value is read to its end or refused.
 */
#include "conf/options.h"
#include "conf/option_warnings.h"
#include "os/os.h"
#include <string.h>
#include <unistd.h>

#define RETAIN_PARTS_OF_LIMIT 16u
#define FLOOR_PARTS_OF_LIMIT  256u
#define LRU_PARTS_OF_LIMIT    32u
#define PINNED_PARTS_OF_LIMIT 64u
#define PINNED_PAGE_SHIFT     12u
#define LIMIT_OF_SHARD        (32u * 1024 * 1024) /* together they hold a 64th of the limit at most */

#define PROCESSORS_OF_DEFAULTS 4u
#define SCALE_MAX              16u

/* Whether what the linker places for it is read-only when a constructor runs, in every kind of program. */
#if defined(__GLIBC__)
#define HAK_LOADER_FREEZES 1
#else
#define HAK_LOADER_FREEZES 0
#endif

#define PREFIX_BYTES (sizeof(HAK_OPTION_PREFIX) - 1)

#define INITIAL_FLAG(name, field, initial, help)                    .field = (initial),
#define INITIAL_NUMBER(name, field, initial, min, max, unit, help)  .field = (initial),
#define INITIAL_LIST(name, field, n, initial, min, max, unit, help) .field = {[0 ...(n) - 1] = (initial)},
#define INITIAL_CHOICE(name, field, initial, words, help)           .field = (initial),
#define INITIAL_PATH(name, field, help)                             .field = "",

/*
 * In a section of its own, so that its alignment is not that of all data: the gap before would cost an OS
 * page. By its name the linker puts it where the loader makes it read-only.
 */
__attribute__((section(".data.rel.ro.hak_options"))) struct hak_options hak_options = {
    /* clang-format off */
    HAK_OPTION_TABLE(INITIAL_FLAG, INITIAL_NUMBER, INITIAL_LIST, INITIAL_CHOICE, INITIAL_PATH)
        /* clang-format on */
        .base_floor_kib = HAK_BASE_FLOOR_KIB,
    .pinned_pages = HAK_PINNED_PAGES,
    .parked_shards = HAK_PARKED_SHARDS,
    .lasting_mb = HAK_LASTING_MB,
};

enum pass { PASS_PROFILE, PASS_SINGLE, PASS_LISTS, PASS_COUNT };

/*
 * Switches of the build. `make HAKMEM_DEBUG_COUNTERS=1 test` exports them to every program that it runs,
 * where they mean nothing and are no mistake.
 */
static const char build_switches[][20] = {"BUILD_RELEASE", "DEBUG_COUNTERS"};

static bool is_same(const char *text, size_t bytes, const char *word) {
    return strlen(word) == bytes && memcmp(text, word, bytes) == 0;
}

static bool is_build_switch(const struct hak_setting *setting) {
    for (size_t i = 0; i < HAK_COUNT_OF(build_switches); i++) {
        if (is_same(setting->name, setting->name_bytes, build_switches[i])) {
            return true;
        }
    }
    return false;
}

/* ---- values ----------------------------------------------------------------------------------------- */

/* Reads a text of decimal digits alone. False when it is empty, holds anything else or is above maximum. */
static bool parse_number(const char *text, uint32_t minimum, uint32_t maximum, uint32_t *out) {
    uint64_t value = 0;
    const char *c = text;
    for (; *c >= '0' && *c <= '9'; c++) {
        value = value * 10 + (uint64_t)(*c - '0');
        if (value > maximum) {
            return false;
        }
    }
    *out = (uint32_t)value;
    return c != text && *c == '\0' && value >= minimum;
}

static bool parse_choice(const char *text, const struct hak_option_row *row, uint32_t *out) {
    const char *cursor = row->words;
    const char *word;
    size_t bytes;
    for (uint32_t i = 0; hak_option_next_word(&cursor, &word, &bytes); i++) {
        if (strlen(text) == bytes && memcmp(text, word, bytes) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* Stores the path, "-" for stderr, "" for none. False when it is too long. */
static bool parse_path(const char *text, char *out) {
    if (strcmp(text, "0") == 0 || strcmp(text, "off") == 0) {
        text = "";
    } else if (strcmp(text, "1") == 0) {
        text = HAK_OPTION_PATH_STDERR;
    }
    size_t bytes = strlen(text) + 1;
    if (bytes > HAK_OPTION_PATH_BYTES) {
        return false;
    }
    memcpy(out, text, bytes);
    return true;
}

/* Stores the value; false and nothing stored when it is none of the option's. */
static bool apply(struct hak_options *options, const struct hak_setting *setting) {
    const struct hak_option_row *row = setting->row;
    void *field = (char *)options + hak_setting_offset(setting);
    uint32_t value;
    switch (row->kind) {
    case HAK_OPTION_FLAG:
        if (!parse_number(setting->value, 0, 1, &value)) {
            return false;
        }
        *(bool *)field = value != 0;
        return true;
    case HAK_OPTION_PATH:
        return parse_path(setting->value, field);
    case HAK_OPTION_CHOICE:
        if (!parse_choice(setting->value, row, &value)) {
            return false;
        }
        break;
    default:
        if (!parse_number(setting->value, row->minimum, row->maximum, &value)) {
            return false;
        }
        break;
    }
    *(uint32_t *)field = value;
    if (field == &options->retain_mb) { /* whoever says how much may stay means it */
        options->lasting_mb = value;
    }
    return true;
}

/* ---- the environment -------------------------------------------------------------------------------- */

/* Finds the setting's name among the row's; false when it is none of them. */
static bool look_up_in(struct hak_setting *setting, const struct hak_option_row *row) {
    for (unsigned index = 0; index < row->count; index++) {
        char name[HAK_OPTION_NAME_BYTES];
        hak_option_name(row, index, name);
        if (is_same(setting->name, setting->name_bytes, name)) {
            setting->row = row;
            setting->index = index;
            return true;
        }
    }
    return false;
}

/* Leaves row NULL when no option has the setting's name. Few rows begin as it does: the others' names are not
 * made. */
static void look_up(struct hak_setting *setting) {
    for (size_t i = 0; i < HAK_OPTION_ROWS; i++) {
        const struct hak_option_row *row = &hak_option_rows[i];
        size_t bytes = strlen(row->name);
        if (bytes <= setting->name_bytes && memcmp(setting->name, row->name, bytes) == 0 &&
            look_up_in(setting, row)) {
            return;
        }
    }
}

static HAK_AT_START bool has_prefix(const char *entry) {
    return strncmp(entry, HAK_OPTION_PREFIX, PREFIX_BYTES) == 0;
}

/* Splits a HAKMEM_ entry. False for what says nothing: no value, or a switch of the build. */
static bool split(const char *entry, struct hak_setting *setting) {
    const char *name = entry + PREFIX_BYTES;
    const char *equals = strchr(name, '=');
    if (equals == NULL || equals[1] == '\0') {
        return false;
    }
    *setting = (struct hak_setting){.name = name, .name_bytes = (size_t)(equals - name), .value = equals + 1};
    if (is_build_switch(setting)) {
        return false;
    }
    look_up(setting);
    return true;
}

/* The pass that a setting belongs to; unknown names are reported in the second. */
static enum pass pass_of(const struct hak_setting *setting) {
    if (setting->row == NULL) {
        return PASS_SINGLE;
    }
    if (setting->row->kind == HAK_OPTION_LIST) {
        return PASS_LISTS;
    }
    return setting->row->offset_bytes == offsetof(struct hak_options, tiny_profile) ? PASS_PROFILE
                                                                                    : PASS_SINGLE;
}

static HAK_COLD void run_pass(enum pass pass, struct hak_options *options, char *const *environment,
                              int warnings_fd) {
    for (char *const *entry = environment; *entry != NULL; entry++) {
        struct hak_setting setting;
        if (!has_prefix(*entry) || !split(*entry, &setting) || pass_of(&setting) != pass) {
            continue;
        }
        if (setting.row == NULL) {
            hak_warn_unknown_option(&setting, warnings_fd);
        } else if (!apply(options, &setting)) {
            hak_warn_option_value(options, &setting, warnings_fd);
        }
    }
}

static HAK_COLD void apply_profile(struct hak_options *options) {
#define APPLY(profile, field, value)                                                                         \
    if (options->tiny_profile == (profile)) {                                                                \
        options->field = (value);                                                                            \
    }
    HAK_PROFILE_TABLE(APPLY)
#undef APPLY
}

static HAK_COLD void spread_prewarm(struct hak_options *options) {
    for (unsigned i = 0; i < HAK_CLASS_COUNT; i++) {
        options->tiny_prewarm_blocks[i] = options->tiny_prewarm_all;
    }
}

/* The first setting of an environment; NULL when there is none. */
static HAK_AT_START char *const *first_setting(char *const *environment) {
    for (char *const *entry = environment; entry != NULL && *entry != NULL; entry++) {
        if (has_prefix(*entry)) {
            return entry;
        }
    }
    return NULL;
}

static HAK_AT_START unsigned scale_of(unsigned processors) {
    unsigned scale = processors / PROCESSORS_OF_DEFAULTS;
    return scale < 1 ? 1 : scale < SCALE_MAX ? scale : SCALE_MAX;
}

/* Writes nothing where the defaults hold: the page may be read-only. */
static HAK_AT_START void scale(struct hak_options *options, unsigned processors) {
    unsigned times = scale_of(processors);
    if (times != 1) {
        options->retain_mb *= times;
        options->lasting_mb = (uint32_t)hak_larger(options->lasting_mb, options->retain_mb);
        options->pinned_pages *= times;
        options->parked_shards =
            (uint32_t)hak_smaller(options->parked_shards << hak_log2(times), HAK_PARKED_SHARDS_MAX);
    }
}

void hak_options_parse(struct hak_options *options, char *const *environment, unsigned processors,
                       int warnings_fd) {
    char *const *first = first_setting(environment);
    if (first == NULL) {
        scale(options, processors);
        return;
    }
    uint32_t usual_mb = options->retain_mb;
    run_pass(PASS_PROFILE, options, first, warnings_fd);
    apply_profile(options);
    bool is_by_profile = options->retain_mb != usual_mb;
    scale(options, processors);
    if (is_by_profile) { /* as if it were set */
        options->lasting_mb = options->retain_mb;
    }
    run_pass(PASS_SINGLE, options, first, warnings_fd);
    spread_prewarm(options);
    run_pass(PASS_LISTS, options, first, warnings_fd);
}

/* The part of the limit that an amount may be at most, or the amount. */
static HAK_AT_START uint32_t within(uint32_t amount, uint64_t limit, unsigned parts) {
    return limit != 0 && amount > limit / parts ? (uint32_t)(limit / parts) : amount;
}

/* A power of two as before, and not below what any process has. */
static HAK_AT_START uint32_t bounded_shards(uint32_t shards, uint64_t limit_bytes) {
    uint32_t most = within(shards, limit_bytes, LIMIT_OF_SHARD);
    return most < HAK_PARKED_SHARDS ? HAK_PARKED_SHARDS : 1u << hak_log2(most);
}

/* Those that a limit bounds. */
struct bounded {
    uint32_t retain_mb;
    uint32_t ss_lru_mb;
    uint32_t base_floor_kib;
    uint32_t pinned_pages;
    uint32_t parked_shards;
    uint32_t lasting_mb;
};

static HAK_AT_START struct bounded bounded_by(const struct hak_options *options, uint64_t limit_bytes) {
    return (struct bounded){
        .retain_mb = within(options->retain_mb, limit_bytes >> 20, RETAIN_PARTS_OF_LIMIT),
        .ss_lru_mb = within(options->ss_lru_mb, limit_bytes >> 20, LRU_PARTS_OF_LIMIT),
        .base_floor_kib = within(options->base_floor_kib, limit_bytes >> 10, FLOOR_PARTS_OF_LIMIT),
        .pinned_pages =
            within(options->pinned_pages, limit_bytes >> PINNED_PAGE_SHIFT, PINNED_PARTS_OF_LIMIT),
        .parked_shards = bounded_shards(options->parked_shards, limit_bytes),
        .lasting_mb = within(options->lasting_mb, limit_bytes >> 20, RETAIN_PARTS_OF_LIMIT),
    };
}

void hak_options_bound(struct hak_options *options, uint64_t limit_bytes) {
    struct bounded bounded = bounded_by(options, limit_bytes);
    options->retain_mb = bounded.retain_mb;
    options->ss_lru_mb = bounded.ss_lru_mb;
    options->base_floor_kib = bounded.base_floor_kib;
    options->pinned_pages = bounded.pinned_pages;
    options->parked_shards = bounded.parked_shards;
    options->lasting_mb = bounded.lasting_mb;
}

static HAK_AT_START bool is_bounded_by(const struct hak_options *options, uint64_t limit_bytes) {
    struct bounded bounded = bounded_by(options, limit_bytes);
    struct bounded as_it_is = bounded_by(options, 0);
    return memcmp(&bounded, &as_it_is, sizeof bounded) != 0;
}

/*
 * The page stays as the loader has it when nothing is to be set, as nearly always where there are fewer than
 * eight processors: no system call, no copy of it.
 */
HAK_AT_START void hak_options_start(char *const *environment, uint64_t limit_bytes, unsigned processors) {
    char *const *first = hak_os_is_secure() ? NULL : first_setting(environment);
    bool is_set = first != NULL || scale_of(processors) != 1 || is_bounded_by(&hak_options, limit_bytes);
    if (is_set) {
        if (hak_os_allow(&hak_options, sizeof hak_options) != 0) {
            if (first != NULL) {
                hak_warn_options_closed(STDERR_FILENO);
            }
            return;
        }
        hak_options_parse(&hak_options, first, processors, STDERR_FILENO);
        hak_options_bound(&hak_options, limit_bytes);
    }
    if (is_set || !HAK_LOADER_FREEZES) {
        (void)hak_os_freeze(&hak_options, sizeof hak_options);
    }
    if (hak_options.help) {
        hak_options_help(STDERR_FILENO);
    }
}
