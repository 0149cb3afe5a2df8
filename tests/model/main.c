/*
 * main.c - the checker's command line.
 *
 * usage: modelcheck [--help] [--deep] [--verbose] [--limit SECONDS] [--weaken FILE:LINE:PART] [--sites]
 * [NAME...]
 *
 * Explores the scenarios whose name starts so (all quick ones; with --deep the long ones too), each in a
 * process of its own, and says how many executions each has. --weaken drops one half (acquire or release)
 * of the order at one place. --sites lists every acquire and release
 * of the library with the scenarios in which it is a step.
 */
#define _GNU_SOURCE
#include "model/checker.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SITES_MAX      1024u
#define LIMIT_QUICK_S  120.0
#define USED_HASH_MASK 4095u

const struct model_site *const *model_site_list(size_t *count); /* the library's */

/* In memory shared with the processes of the scenarios. */
static struct {
    struct verdict verdict;
    uint8_t is_used[SITES_MAX]; /* by index in the list, in the scenario that ran last */
} * shared;

static const struct model_site *const *sites;
static size_t site_count;
static struct {
    const struct model_site *site;
    unsigned idx;
} site_table[USED_HASH_MASK + 1];

static unsigned slot_of(const struct model_site *site) {
    unsigned slot = (unsigned)((uintptr_t)site >> 3) & USED_HASH_MASK;
    while (site_table[slot].site != NULL && site_table[slot].site != site) {
        slot = (slot + 1) & USED_HASH_MASK;
    }
    return slot;
}

void note_site(const struct model_site *site) {
    shared->is_used[site_table[slot_of(site)].idx] = 1;
}

static bool is_same_place(const struct model_site *a, const struct model_site *b) {
    return a->line == b->line && strcmp(a->file, b->file) == 0 && strcmp(a->what, b->what) == 0;
}

static void list_sites(void) {
    sites = model_site_list(&site_count);
    if (site_count > SITES_MAX) {
        fprintf(stderr, "model: more sites than the checker has room for\n");
        exit(2);
    }
    for (unsigned i = 0; i < site_count; i++) {
        unsigned slot = slot_of(sites[i]);
        site_table[slot].site = sites[i];
        site_table[slot].idx = i;
        /* An inline function has a site in every file that includes it. */
        for (unsigned j = 0; j < i; j++) {
            if (is_same_place(sites[i], sites[j])) {
                site_table[slot].idx = j;
                break;
            }
        }
    }
}

/* Explores one scenario in a child; its verdict is in shared memory. False: it failed or is incomplete. */
static bool run_scenario(const struct model_scenario *scenario, double limit_s, bool is_verbose) {
    memset(shared, 0, sizeof *shared);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        explore(scenario, limit_s, is_verbose, &shared->verdict);
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    struct verdict *verdict = &shared->verdict;
    if (status != 0 && !verdict->has_failed) {
        verdict->has_failed = true;
        snprintf(verdict->why, sizeof verdict->why, "the checker's process ended with status %#x",
                 (unsigned)status);
    }
    return !verdict->has_failed && verdict->is_exhausted;
}

static void print_verdict(const struct model_scenario *scenario) {
    const struct verdict *verdict = &shared->verdict;
    const char *word = verdict->has_failed ? "FAILED" : verdict->is_exhausted ? "all pass" : "NOT EXHAUSTED";
    printf("%-28s %9lu executions, %8lu cut short, at most %4u steps, %6.2f s: %s\n", scenario->name,
           verdict->executions, verdict->pruned, verdict->steps_max, verdict->seconds, word);
    if (verdict->has_failed) {
        printf("    %s\n    claim: %s\n", verdict->why, scenario->claim);
    }
}

static void print_used_sites(const struct model_scenario *scenario) {
    static const char *const orders[] = {"relaxed", "acquire", "release", "acq_rel"};
    for (unsigned i = 0; i < site_count; i++) {
        if (scenario == NULL ? site_table[slot_of(sites[i])].idx == i && sites[i]->order != MODEL_RELAXED
                             : shared->is_used[i] != 0 && sites[i]->order != MODEL_RELAXED) {
            printf("site %s:%d %s %s %s\n", sites[i]->file, sites[i]->line, sites[i]->what,
                   orders[sites[i]->order], scenario == NULL ? "-" : scenario->name);
        }
    }
}

static void parse_weakened(char *text) {
    static const char *const parts[] = {"nothing", "acquire", "release"};
    char *line = strchr(text, ':');
    char *part = line == NULL ? NULL : strchr(line + 1, ':');
    if (part != NULL) {
        *line = *part = '\0';
        weakened.file = text;
        weakened.line = atoi(line + 1);
        for (unsigned i = 1; i < sizeof parts / sizeof parts[0]; i++) {
            if (strcmp(part + 1, parts[i]) == 0) {
                weakened.part = (enum weak_part)i;
                return;
            }
        }
    }
    fprintf(stderr, "model: --weaken takes FILE:LINE:acquire or :release\n");
    exit(2);
}

struct request {
    bool is_deep, is_verbose, is_about_sites;
    double limit_s;
    char **names;
    int name_count;
};

static bool is_wanted(const struct request *request, const struct model_scenario *scenario) {
    for (int i = 0; i < request->name_count; i++) {
        if (strncmp(scenario->name, request->names[i], strlen(request->names[i])) == 0) {
            return true;
        }
    }
    return request->name_count == 0 && (request->is_deep || !scenario->is_deep);
}

static struct request parse(int argc, char **argv) {
    struct request request = {.limit_s = LIMIT_QUICK_S};
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--deep") == 0) {
            request.is_deep = true;
            spurious_max = 1;
        } else if (strcmp(argv[i], "--verbose") == 0) {
            request.is_verbose = true;
        } else if (strcmp(argv[i], "--sites") == 0) {
            request.is_about_sites = true;
        } else if (strcmp(argv[i], "--limit") == 0 && i + 1 < argc) {
            request.limit_s = atof(argv[++i]);
        } else if (strcmp(argv[i], "--weaken") == 0 && i + 1 < argc) {
            parse_weakened(argv[++i]);
        } else {
            bool is_help = strcmp(argv[i], "--help") == 0;
            fprintf(is_help ? stdout : stderr, "usage: modelcheck [--deep] [--verbose] [--limit SECONDS] "
                                               "[--weaken FILE:LINE:PART] [--sites] "
                                               "[NAME...]\n");
            exit(is_help ? 0 : 2);
        }
    }
    request.names = argv + i;
    request.name_count = argc - i;
    return request;
}

int main(int argc, char **argv) {
    struct request request = parse(argc, argv);
    struct range ranges[8];
    unsigned passed = 0, failed = 0;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("model: memory");
        return 2;
    }
    list_sites();
    world_create();
    races_create(ranges, world_ranges(ranges));
    fibers_create();
    if (request.is_about_sites) {
        print_used_sites(NULL);
    }
    for (const struct model_scenario *const *at = model_scenarios; *at != NULL; at++) {
        if (!is_wanted(&request, *at)) {
            continue;
        }
        bool is_good = run_scenario(*at, request.limit_s, request.is_verbose);
        passed += is_good;
        failed += !is_good;
        print_verdict(*at);
        if (request.is_about_sites) {
            print_used_sites(*at);
        }
    }
    printf("%u passed, %u failed\n", passed, failed);
    return failed == 0 && passed != 0 ? 0 : 1;
}
