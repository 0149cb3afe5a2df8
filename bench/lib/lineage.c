// Lineages of threads, see lineage.h.
#include "lineage.h"

#include <pthread.h>

struct lineage {
    pthread_t predecessor;
    bool has_predecessor;
    uint64_t generations_left;
    void (*work)(void *context);
    void *context;
    pthread_t self;         // written by the thread itself, read by the successor it starts afterwards
    pthread_mutex_t lock;   // guards is_done
    pthread_cond_t changed; // is_done became true
    bool is_done;
};

static struct lineage lineages[BENCH_MAX_THREADS];

static void *generation_main(void *arg) {
    struct lineage *lineage = arg;
    if (lineage->has_predecessor) {
        pthread_join(lineage->predecessor, NULL);
    }
    lineage->work(lineage->context);
    lineage->predecessor = pthread_self();
    lineage->has_predecessor = true;
    if (--lineage->generations_left > 0) {
        pthread_t successor;
        if (pthread_create(&successor, NULL, generation_main, lineage) != 0) {
            bench_die_system("pthread_create failed");
        }
        return NULL;
    }
    pthread_mutex_lock(&lineage->lock);
    lineage->self = pthread_self();
    lineage->is_done = true;
    pthread_cond_signal(&lineage->changed);
    pthread_mutex_unlock(&lineage->lock);
    return NULL;
}

static void lineage_wait(struct lineage *lineage) {
    pthread_mutex_lock(&lineage->lock);
    while (!lineage->is_done) {
        pthread_cond_wait(&lineage->changed, &lineage->lock);
    }
    pthread_t last = lineage->self;
    pthread_mutex_unlock(&lineage->lock);
    pthread_join(last, NULL);
}

void lineages_run(unsigned count, uint64_t generations, void (*work)(void *context), void *context,
                  size_t stride, struct bench_result *result) {
    struct bench_timer timer;
    bench_start(&timer);
    for (unsigned i = 0; i < count; i++) {
        struct lineage *lineage = &lineages[i];
        *lineage = (struct lineage){
            .generations_left = generations, .work = work, .context = (char *)context + i * stride};
        pthread_mutex_init(&lineage->lock, NULL);
        pthread_cond_init(&lineage->changed, NULL);
        pthread_t first;
        if (pthread_create(&first, NULL, generation_main, lineage) != 0) {
            bench_die_system("pthread_create failed");
        }
    }
    for (unsigned i = 0; i < count; i++) {
        lineage_wait(&lineages[i]);
    }
    bench_stop(&timer, result);
}
