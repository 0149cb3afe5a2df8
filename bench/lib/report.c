// The result of a bench program, for people or as one line of JSON for the runner.
//
// Does: print the throughput line, the metrics, the points, and the object that malloc comes from.
// Does not: allocate: everything goes through a buffer in .bss and write(2), so that printing adds nothing
// to the resident set that is being reported.
#include "bench.h"
#include "provider.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    size_t used;
    char text[16384];
} line;

__attribute__((format(printf, 1, 2))) static void put(const char *format, ...) {
    va_list list;
    va_start(list, format);
    size_t room = sizeof line.text - line.used;
    int wrote = vsnprintf(line.text + line.used, room, format, list);
    va_end(list);
    if (wrote < 0 || (size_t)wrote >= room) {
        bench_die_system("the result does not fit its buffer");
    }
    line.used += (size_t)wrote;
}

static void flush_line(void) {
    for (size_t done = 0; done < line.used;) {
        ssize_t wrote = write(STDOUT_FILENO, line.text + done, line.used - done);
        if (wrote <= 0) {
            bench_die_system("cannot write the result");
        }
        done += (size_t)wrote;
    }
}

const char *bench_malloc_object(void) {
    static const char *const family[] = {"free", "calloc", "realloc"};
    const char *object = provider_of("malloc");
    for (size_t i = 0; i < sizeof family / sizeof family[0]; i++) {
        const char *other = provider_of(family[i]);
        if (strcmp(object, other) != 0) {
            fprintf(stderr, "malloc comes from %s but %s from %s\n", object, family[i], other);
            exit(BENCH_EXIT_SYSTEM);
        }
    }
    return object;
}

void bench_metric_add(struct bench_result *result, const char *name, const char *unit, double value) {
    if (result->metric_count == BENCH_MAX_METRICS) {
        bench_die_system("too many metrics");
    }
    result->metrics[result->metric_count++] = (struct bench_metric){name, unit, value};
}

void bench_point_add(struct bench_result *result, double at_s, double value) {
    if (result->point_count == BENCH_MAX_POINTS) {
        bench_die_system("too many points");
    }
    result->points[result->point_count++] = (struct bench_point){at_s, value};
}

static void put_json_string(const char *text) {
    put("\"");
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\' || c < 0x20) {
            put("\\u%04x", c);
        } else {
            put("%c", c);
        }
    }
    put("\"");
}

static void put_json(const struct bench_args *args, const struct bench_result *result, double per_second) {
    const char *const *modes = args->spec->modes;
    put("{\"program\": \"%s\", \"mode\": \"%s\", \"iterations\": %llu, \"working_set\": %llu, \"seed\": "
        "%llu, ",
        args->spec->name, modes != NULL ? modes[args->mode_idx] : "", (unsigned long long)args->iterations,
        (unsigned long long)args->working_set, (unsigned long long)args->seed);
    put("\"threads\": %u, \"ops\": %llu, \"ops_per_s\": %.1f, \"wall_s\": %.9f, \"cpu_s\": %.9f, ",
        args->threads == 0 ? 1 : args->threads, (unsigned long long)result->ops, per_second, result->wall_s,
        result->cpu_s);
    put("\"malloc_from\": ");
    put_json_string(bench_malloc_object());
    put(", \"metrics\": {");
    for (unsigned i = 0; i < result->metric_count; i++) {
        const struct bench_metric *m = &result->metrics[i];
        put("%s\"%s\": {\"value\": %.6g, \"unit\": \"%s\"}", i == 0 ? "" : ", ", m->name, m->value, m->unit);
    }
    put("}, \"points\": [");
    for (unsigned i = 0; i < result->point_count; i++) {
        put("%s[%.4f, %.4f]", i == 0 ? "" : ", ", result->points[i].at_s, result->points[i].value);
    }
    put("]}\n");
}

static void put_text(const struct bench_args *args, const struct bench_result *result, double per_second) {
    put("Throughput = %.0f ops/s [iter=%llu ws=%llu seed=%llu] time=%.6fs\n", per_second,
        (unsigned long long)args->iterations, (unsigned long long)args->working_set,
        (unsigned long long)args->seed, result->wall_s);
    for (unsigned i = 0; i < result->metric_count; i++) {
        const struct bench_metric *m = &result->metrics[i];
        put("  %s = %.6g %s\n", m->name, m->value, m->unit);
    }
    for (unsigned i = 0; i < result->point_count; i++) {
        put("  RSS at %.2f s = %.1f MiB\n", result->points[i].at_s, result->points[i].value);
    }
}

void bench_report(const struct bench_args *args, const struct bench_result *result) {
    double per_second = result->wall_s > 0 ? (double)result->ops / result->wall_s : 0;
    if (args->is_json) {
        put_json(args, result, per_second);
    } else {
        put_text(args, result, per_second);
    }
    flush_line();
}
