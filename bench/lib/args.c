// The command line of the bench programs: `iterations working-set seed` and declared options.
//
// Does: accept exactly what the program's spec declares and refuse the rest with the usage.
// Does not: know what the numbers mean.
#include "bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_usage(const struct bench_spec *spec, FILE *to) {
    fprintf(to, "usage: %s [iterations [working-set [seed]]] [--json]", spec->name);
    if (spec->threads != 0) {
        fprintf(to, " [--threads=N]");
    }
    if (spec->seconds != 0) {
        fprintf(to, " [--seconds=N]");
    }
    if (spec->modes != NULL) {
        fprintf(to, " [--mode=");
        for (size_t i = 0; spec->modes[i] != NULL; i++) {
            fprintf(to, "%s%s", i == 0 ? "" : "|", spec->modes[i]);
        }
        fprintf(to, "]");
    }
    fprintf(to, "\n%s\ndefaults: %llu %llu %llu", spec->imitates, (unsigned long long)spec->iterations,
            (unsigned long long)spec->working_set, (unsigned long long)spec->seed);
    if (spec->threads != 0) {
        fprintf(to, " --threads=%u", spec->threads);
    }
    if (spec->seconds != 0) {
        fprintf(to, " --seconds=%u", spec->seconds);
    }
    fprintf(to, "\n");
}

static _Noreturn void die_usage(const struct bench_spec *spec, const char *problem, const char *what) {
    fprintf(stderr, "%s: %s: %s\n", spec->name, problem, what);
    print_usage(spec, stderr);
    exit(BENCH_EXIT_USAGE);
}

static uint64_t parse_number(const struct bench_spec *spec, const char *text, uint64_t low, uint64_t high) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-') {
        die_usage(spec, "not a number", text);
    }
    if (value < low || value > high) {
        die_usage(spec, "number out of bounds", text);
    }
    return value;
}

static unsigned parse_mode(const struct bench_spec *spec, const char *text) {
    for (unsigned i = 0; spec->modes[i] != NULL; i++) {
        if (strcmp(spec->modes[i], text) == 0) {
            return i;
        }
    }
    die_usage(spec, "unknown mode", text);
}

// The value of `--name=value`, NULL when `arg` is another option.
static const char *option_value(const char *arg, const char *name) {
    size_t length = strlen(name);
    return strncmp(arg, name, length) == 0 && arg[length] == '=' ? arg + length + 1 : NULL;
}

static void parse_option(const char *arg, struct bench_args *args) {
    const struct bench_spec *spec = args->spec;
    const char *value;
    if (strcmp(arg, "--json") == 0) {
        args->is_json = true;
    } else if (strcmp(arg, "--help") == 0) {
        print_usage(spec, stdout);
        exit(0);
    } else if (spec->threads != 0 && (value = option_value(arg, "--threads")) != NULL) {
        args->threads = (unsigned)parse_number(spec, value, 1, BENCH_MAX_THREADS);
    } else if (spec->seconds != 0 && (value = option_value(arg, "--seconds")) != NULL) {
        args->seconds = (unsigned)parse_number(spec, value, 0, 3600);
    } else if (spec->modes != NULL && (value = option_value(arg, "--mode")) != NULL) {
        args->mode_idx = parse_mode(spec, value);
    } else {
        die_usage(spec, "unknown option", arg);
    }
}

void bench_parse(const struct bench_spec *spec, int argc, char **argv, struct bench_args *args) {
    *args = (struct bench_args){
        .spec = spec,
        .iterations = spec->iterations,
        .working_set = spec->working_set,
        .seed = spec->seed,
        .threads = spec->threads,
        .seconds = spec->seconds,
    };
    int position = 0;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') {
            parse_option(argv[i], args);
            continue;
        }
        switch (position++) {
        case 0:
            args->iterations = parse_number(spec, argv[i], 1, UINT64_C(1) << 40);
            break;
        case 1:
            // The random numbers that pick a slot have 32 bits.
            args->working_set = parse_number(spec, argv[i], 1, UINT32_MAX);
            break;
        case 2:
            args->seed = parse_number(spec, argv[i], 0, UINT64_MAX);
            break;
        default:
            die_usage(spec, "one argument too many", argv[i]);
        }
    }
}
