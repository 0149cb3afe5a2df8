/*
 * trace.c - see trace.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* Dl_info */
#endif
#include "check/trace.h"
#include "base/bits.h"
#include "check/libc.h"
#include "check/object.h"
#include "check/own_code.h"
#include "check/trace_table.h"
#include "check/unwind.h"
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#define OWN_FRAMES_MAX  6u                   /* of hakmem above the program's frames */
#define ROOT_FRAMES_MAX 4u                   /* of libc at the outer end of a stack */
#define UNBOUND_BYTES   ((uintptr_t)1 << 20) /* of a stack that is not the thread's own, at most */
#define STACK_BYTES_MAX                                                                                      \
    ((uintptr_t)1 << 30) /* of the thread's own: one without limit ends at what lies below */
#define UNWINDER_NAME "/libgcc_s.so"
#define GETATTR_BYTES 4096u                      /* more than the code of pthread_getattr_np() has */
#define ADDRESS_MASK  (((uintptr_t)1 << 48) - 1) /* aarch64 may sign return addresses in the bits above */

/* Where the calling thread's stack lies. Owner: the thread. high 0: not asked yet. */
static HAK_TLS struct {
    uintptr_t low, high;
    void *root;   /* the return address into what started the thread; NULL: not known yet */
    bool is_busy; /* inside here: what libc allocates now gets no trace */
} own_stack;

static struct {
    unsigned frames_max;           /* const after start; 0: off */
    bool has_tables, asks_libc;    /* const after start: how stacks may be walked */
    uintptr_t libc_low, libc_high; /* const after start */
} traces;

/* ---- start ---- */

static void find_libc(void) {
    Dl_info libc;
    const void *inside = (const void *)(uintptr_t)hak_check_libc.backtrace;
    if (inside != NULL && hak_check_libc.dladdr != NULL && hak_check_libc.dladdr(inside, &libc) != 0) {
        traces.libc_low = (uintptr_t)libc.dli_fbase;
        traces.libc_high = hak_object_end(traces.libc_low);
    }
}

/* The main thread's opens a file, any other's asks for its processors. */
static void find_stack(void) {
    pthread_attr_t attributes;
    void *low;
    size_t bytes;
    own_stack.high = 1; /* nothing lies in it */
    if (hak_own_code.has_other_malloc) {
        return;
    }
    if (hak_check_libc.self == NULL || hak_check_libc.getattr == NULL || hak_check_libc.getstack == NULL ||
        hak_check_libc.destroy == NULL || hak_check_libc.getattr(hak_check_libc.self(), &attributes) != 0) {
        return;
    }
    if (hak_check_libc.getstack(&attributes, &low, &bytes) == 0) {
        own_stack.high = (uintptr_t)low + bytes;
        own_stack.low = bytes > STACK_BYTES_MAX ? own_stack.high - STACK_BYTES_MAX : (uintptr_t)low;
    }
    (void)hak_check_libc.destroy(&attributes);
}

void hak_trace_prepare(unsigned frames, bool is_seldom) {
    void *first[1];
    hak_check_find_libc();
    hak_own_code_find();
    if (frames == 0 || hak_trace_table_prepare() != 0) {
        return;
    }
    traces.has_tables = hak_unwind_prepare();
    /* Under an auditing module glibc (2.36) sets its own thread-local variables up anew when it loads
     * libgcc_s. */
    bool is_audited = getenv("LD_AUDIT") != NULL;
    traces.asks_libc = hak_check_libc.backtrace != NULL && !hak_own_code.has_other_malloc && !is_audited &&
                       !(is_seldom && traces.has_tables);
    if (traces.asks_libc) {
        hak_check_start_libc();
        (void)hak_check_libc.backtrace(first, 1); /* loads libgcc_s, which no free may do */
    }
    find_libc();
    find_stack(); /* now: a filter may later forbid to open files */
    traces.frames_max = frames < HAK_TRACE_FRAMES_MAX ? frames : HAK_TRACE_FRAMES_MAX;
}

/* ---- walking ---- */

static bool is_frame(uintptr_t frame) {
    return frame >= own_stack.low && frame < own_stack.high &&
           own_stack.high - frame >= 2 * sizeof(uintptr_t) && hak_is_aligned(frame, sizeof(uintptr_t));
}

/*
 * The chain of frame pointers: each frame holds the caller's frame and the return address. Safe on any
 * contents: every frame lies in this thread's stack, above the one before.
 */
static unsigned walk_frames(uintptr_t frame, void **frames, unsigned max) {
    unsigned count = 0;
    uintptr_t below = 0;
    while (frame > below && count < max && is_frame(frame)) {
        const uintptr_t *words = (const uintptr_t *)frame;
        frames[count++] = (void *)(words[1] & ADDRESS_MASK);
        below = frame;
        frame = words[0];
    }
    return count;
}

static struct hak_frame caller_of(uintptr_t frame) {
    const uintptr_t *words = (const uintptr_t *)frame;
    return (struct hak_frame){.address = words[1], .stack = frame + 2 * sizeof *words, .base = words[0]};
}

/* From code without tables, where its base pointer may be a frame. */
static bool step_by_base(struct hak_frame *frame) {
    if (!frame->is_bare || frame->base < frame->stack || !is_frame(frame->stack) || !is_frame(frame->base)) {
        return false;
    }
    struct hak_frame caller = caller_of(frame->base);
    frame->address = caller.address;
    frame->stack = caller.stack;
    frame->base = caller.base;
    return true;
}

/*
 * The same by the compiler's tables, up to the thread's root or where nobody called: *is_whole. Less than
 * that if a frame has no rule. Code that a program compiled for itself has no tables, and may have anything
 * in the base pointer: what lies beyond it counts only if the walk arrives at the root.
 */
static unsigned walk_tables(struct hak_frame frame, void **frames, unsigned max, bool *is_whole) {
    frame.is_unbound = !is_frame(frame.stack);
    frame.is_read_anew = frame.is_unbound;
    uintptr_t low = frame.stack - 2 * sizeof(uintptr_t);
    uintptr_t high = frame.is_unbound ? low + UNBOUND_BYTES : own_stack.high;
    unsigned count = 0, sure_count = 0; /* sure_count 0: all are */
    for (;;) {
        frames[count++] = (void *)frame.address;
        if (count == max || (void *)frame.address == own_stack.root) {
            break;
        }
        if (!hak_unwind_step(&frame, low, high)) {
            unsigned bare_count = count;
            if (!step_by_base(&frame)) {
                break;
            }
            sure_count = sure_count == 0 ? bare_count : sure_count;
        }
    }
    bool is_sure = sure_count == 0 || (void *)frame.address == own_stack.root;
    *is_whole = is_sure && count < max && frame.is_outermost;
    return is_sure ? count : sure_count;
}

/*
 * Where the thread's own code begins, from a whole stack: the innermost of the frames of libc at its outer
 * end, beyond which there may be one more, the program's entry. NULL when a constructor runs: the loader is
 * there.
 */
static void *find_root(void *const *frames, unsigned count) {
    void *root = NULL;
    for (unsigned i = count; i > 0 && count - i <= ROOT_FRAMES_MAX; i--) {
        uintptr_t address = (uintptr_t)frames[i - 1];
        bool is_libc = address >= traces.libc_low && address < traces.libc_high;
        if (is_libc) {
            root = frames[i - 1];
        } else if (root != NULL || i < count) {
            break;
        }
    }
    return root;
}

/* Without what lies beyond the root, as the other walks leave it: equal stacks are one record. */
static unsigned count_to_root(void *const *frames, unsigned count) {
    unsigned inside = 0;
    while (inside < count && frames[inside] != own_stack.root) {
        inside++;
    }
    return inside < count ? inside + 1 : count;
}

static bool is_at_root(void *const *frames, unsigned count) {
    return count != 0 && own_stack.root != NULL && frames[count - 1] == own_stack.root;
}

/*
 * Whether every frame lies in a library or the program, but none in libc's unwinder. That may have called
 * with its lock held, and would wait for itself. Where nobody told it of code that a program compiled for
 * itself, it reads that code, which may have been unmapped before exit() is done; where somebody did, what he
 * told may make it abort.
 */
static bool is_seen_by_unwinder(void *const *frames, unsigned count) {
#ifdef DLFO_STRUCT_HAS_EH_DBASE
    struct dl_find_object object;
    for (unsigned i = 0; i < count; i++) {
        if (hak_check_libc.find_object((char *)frames[i] - 1, &object) != 0 ||
            strstr(object.dlfo_link_map->l_name, UNWINDER_NAME) != NULL) {
            return false;
        }
    }
#else
    (void)frames;
    (void)count;
#endif
    return true;
}

/*
 * Whether libc's unwinder may be asked for more than what the tables gave. Not on a stack that is not the
 * thread's own: it would read on behind its end.
 */
static bool may_ask_libc(uintptr_t frame, void *const *frames, unsigned count) {
    return traces.asks_libc &&
           (!traces.has_tables || (is_frame(frame) && is_seen_by_unwinder(frames, count)));
}

/*
 * Code without frame pointers leaves anything in that register: what looks like a short chain, or the frame
 * of a function further out, whose callees the chain leaves out. So a chain counts only if it arrives at
 * where the unwinder has found this thread to begin, and where tables can be read, if they say the same.
 */
static bool is_chain_right(void *const *frames, unsigned count) {
    return is_at_root(frames, count) && (!traces.has_tables || hak_unwind_is_chain(frames, count));
}

/* A chain is walked faster. Tables are right for every frame, so a part of the stack may be all that is
 * wanted.
 */
static unsigned walk(uintptr_t frame, void **frames, unsigned max) {
    bool is_whole = false;
    unsigned count = walk_frames(frame, frames, max);
    if (hak_check_libc.backtrace == NULL || (count < max && is_chain_right(frames, count))) {
        return count;
    }
    if (traces.has_tables) {
        count = walk_tables(caller_of(frame), frames, max, &is_whole);
        if (count == max || is_at_root(frames, count)) {
            return count;
        }
    }
    if (!is_whole && may_ask_libc(frame, frames, count)) {
        count = (unsigned)hak_check_libc.backtrace(frames, (int)max);
        is_whole = count < max;
    }
    if (is_whole && is_frame(frame)) {
        /* Not for ever: what runs before main() begins elsewhere in libc. */
        void *root = find_root(frames, count);
        own_stack.root = root != NULL ? root : own_stack.root;
    }
    return count_to_root(frames, count);
}

static unsigned skip_own(void **frames, unsigned count) {
    unsigned own = 0;
    while (own < count && (uintptr_t)frames[own] >= hak_own_code.low &&
           (uintptr_t)frames[own] < hak_own_code.high) {
        own++;
    }
    memmove(frames, frames + own, (count - own) * sizeof *frames);
    return count - own < traces.frames_max ? count - own : traces.frames_max;
}

/*
 * Whether the program asks pthreads where this thread's stack is, which allocates under the thread's lock: we
 * would wait for ourselves.
 */
static bool is_asked_for_stack(struct hak_frame from) {
    void *frames[OWN_FRAMES_MAX + 2]; /* and pthread_getattr_np(), and what called it */
    unsigned count = 0;
    bool is_whole;
    if (traces.has_tables) {
        count = walk_tables(from, frames, OWN_FRAMES_MAX + 2, &is_whole);
    } else if (traces.asks_libc) {
        count = (unsigned)hak_check_libc.backtrace(frames, OWN_FRAMES_MAX + 2);
    }
    for (unsigned i = 0; i < count; i++) {
        if ((uintptr_t)frames[i] - (uintptr_t)hak_check_libc.getattr < GETATTR_BYTES) {
            return true;
        }
    }
    return false;
}

/* Whether a trace may be taken now; then to be followed by end_walk(). */
static bool begin_walk(struct hak_frame from) {
    if (traces.frames_max == 0 || own_stack.is_busy) {
        return false;
    }
    own_stack.is_busy = true;
    if (own_stack.high == 0 && !is_asked_for_stack(from)) {
        find_stack();
    }
    return true;
}

static const struct hak_trace *end_walk(void **frames, unsigned count) {
    own_stack.is_busy = false;
    count = skip_own(frames, count);
    return count == 0 ? NULL : hak_trace_keep(frames, count);
}

const struct hak_trace *hak_trace_take(void) {
    void *frames[HAK_TRACE_FRAMES_MAX + OWN_FRAMES_MAX];
    int saved_errno = errno;
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    if (!begin_walk(caller_of(frame))) {
        return NULL;
    }
    unsigned max = traces.frames_max + OWN_FRAMES_MAX;
    unsigned count = walk(frame, frames, max);
    errno = saved_errno;
    return end_walk(frames, count);
}

const struct hak_trace *hak_trace_take_from(const struct hak_frame *frame) {
    void *frames[HAK_TRACE_FRAMES_MAX];
    int saved_errno = errno;
    bool is_whole;
    if (!traces.has_tables || !begin_walk(*frame)) {
        return hak_trace_take();
    }
    unsigned count = walk_tables(*frame, frames, traces.frames_max, &is_whole);
    errno = saved_errno;
    return end_walk(frames, count_to_root(frames, count));
}
