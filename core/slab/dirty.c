/*
 * dirty.c - see dirty.h.
 */
#include "slab/dirty.h"
#include "slab/superslab_pool.h"

static struct hak_dirty_list *list_of(const struct superslab *s) {
    return s->is_paused ? &hak_superslab_pool.paused : &hak_superslab_pool.dirty;
}

void hak_dirty_link(struct superslab *s) {
    struct hak_dirty_list *list = list_of(s);
    s->dirty_next = NULL;
    s->dirty_prev = list->newest;
    *(s->dirty_prev != NULL ? &s->dirty_prev->dirty_next : &list->oldest) = s;
    list->newest = s;
    s->is_in_dirty_list = true;
}

void hak_dirty_unlink(struct superslab *s) {
    struct hak_dirty_list *list = list_of(s);
    *(s->dirty_prev != NULL ? &s->dirty_prev->dirty_next : &list->oldest) = s->dirty_next;
    *(s->dirty_next != NULL ? &s->dirty_next->dirty_prev : &list->newest) = s->dirty_prev;
    s->is_in_dirty_list = s->is_paused = false;
}

void hak_dirty_put_off(struct superslab *s) {
    hak_dirty_unlink(s);
    hak_dirty_link(s);
}

void hak_dirty_pause(struct superslab *s, uint64_t until_ms) {
    if (s->is_in_dirty_list) {
        hak_dirty_unlink(s);
        s->is_paused = true;
        s->paused_until_ms = until_ms;
        hak_dirty_link(s);
    }
}

void hak_dirty_end_pauses(uint64_t now_ms) {
    struct superslab *s;
    while ((s = hak_superslab_pool.paused.oldest) != NULL && now_ms >= s->paused_until_ms) {
        hak_dirty_put_off(s);
    }
}
