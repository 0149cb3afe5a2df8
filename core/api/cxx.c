/*
 * cxx.c - the twenty operators new and delete of C++, in C under their mangled names.
 *
 * What the standard asks of them ([new.delete]): a failed new calls the new-handler as long as there is one
 * and tries again, then throws std::bad_alloc; the nothrow forms return NULL instead. An alignment that is no
 * power of two is undefined; as in libstdc++ it fails at once. Sizes and alignments given to delete are
 * promises, looked at in checked mode alone. Any thread.
 *
 * A program may replace some of them, and the others' default is defined by these: the array forms call the
 * plain ones, the nothrow forms those that throw, the sized deletes those without a size. A program whose own
 * operator new(size_t) and operator delete(void *) belong together relies on it.
 */
#include "api/cxx_catch.h"
#include "api/cxx_runtime.h"
#include "api/gates.h"
#include "base/bits.h"
#include "base/config.h"
#include "heap/front.h"
#include "heap/requests.h"

/* ThreadSanitizer brings operators of its own. */
#if !HAK_TSAN

/*
 * Mangled names are plain identifiers of C. size_t is `m` in them wherever hakmem runs. Weak, so that a
 * program that is linked with the archive may replace some, and so that the compiler believes it.
 */
#define OPERATOR_NEW(mangled, ...)                                                                           \
    HAK_API __attribute__((weak)) void *mangled(__VA_ARGS__);                                                \
    HAK_GATE_CXX void *mangled(__VA_ARGS__)
#define OPERATOR_DELETE(mangled, ...)                                                                        \
    HAK_API __attribute__((weak)) void mangled(__VA_ARGS__);                                                 \
    HAK_GATE_CXX void mangled(__VA_ARGS__)

/* One by which others are defined is hakmem's own function under a second name, the one that programs
 * replace. */
#define OWN(mangled) hak_own_##mangled
#define BASE_NEW(mangled, ...)                                                                               \
    void *OWN(mangled)(__VA_ARGS__);                                                                         \
    HAK_API void *mangled(__VA_ARGS__) __attribute__((weak, alias("hak_own_" #mangled)));                    \
    HAK_GATE_CXX void *OWN(mangled)(__VA_ARGS__)
#define BASE_DELETE(mangled, ...)                                                                            \
    void OWN(mangled)(__VA_ARGS__);                                                                          \
    HAK_API void mangled(__VA_ARGS__) __attribute__((weak, alias("hak_own_" #mangled)));                     \
    HAK_GATE_CXX void OWN(mangled)(__VA_ARGS__)

/* What the program calls by that name: its own or an earlier library's, if there is one. The compiler would
 * take it for hakmem's, whose definition it sees. */
#define CALLED(mangled) ((__typeof(&mangled))hak_in_register((uintptr_t)(mangled)))

#define IS_REPLACED(mangled) HAK_UNLIKELY(CALLED(mangled) != OWN(mangled))

/* ---- new -------------------------------------------------------------------------------------------- */

/* `alignment` 0: what every block has. */
static void *allocate(size_t alignment, size_t bytes) {
    return alignment == 0 ? hak_malloc(bytes) : hak_aligned_alloc(alignment, bytes);
}

/* The first try has failed. Returns a block or throws. */
static HAK_COLD void *new_slow(size_t alignment, size_t bytes) {
    for (;;) {
        hak_new_handler handler = hak_cxx_new_handler();
        if (handler == NULL) {
            hak_cxx_throw_bad_alloc();
        }
        handler();
        void *block = allocate(alignment, bytes);
        if (block != NULL) {
            return block;
        }
    }
}

static void call_handler(void *handler) {
    (*(hak_new_handler *)handler)();
}

/* The same; returns NULL instead of throwing, also when the handler throws. */
static HAK_COLD void *new_nothrow_slow(size_t alignment, size_t bytes) {
    for (;;) {
        hak_new_handler handler = hak_cxx_new_handler();
        if (handler == NULL || !hak_cxx_call_caught(call_handler, &handler)) {
            return NULL;
        }
        void *block = allocate(alignment, bytes);
        if (block != NULL) {
            return block;
        }
    }
}

static HAK_NOINLINE void *new_miss(size_t bytes) {
    void *block = hak_alloc_slow(bytes);
    return HAK_LIKELY(block != NULL) ? block : new_slow(0, bytes);
}

static HAK_NOINLINE void *new_nothrow_miss(size_t bytes) {
    void *block = hak_alloc_slow(bytes);
    return HAK_LIKELY(block != NULL) ? block : new_nothrow_slow(0, bytes);
}

HAK_INLINE void *new_plain(size_t bytes) {
    return hak_alloc_gate_or(bytes, new_miss);
}

HAK_INLINE void *new_nothrow(size_t bytes) {
    return hak_alloc_gate_or(bytes, new_nothrow_miss);
}

static HAK_NOINLINE void *new_aligned_miss(size_t bytes, size_t alignment) {
    if (HAK_UNLIKELY(!hak_is_pow2(alignment))) {
        hak_cxx_throw_bad_alloc();
    }
    void *block = hak_request_aligned_slow(alignment, bytes);
    return HAK_LIKELY(block != NULL) ? block : new_slow(alignment, bytes);
}

static HAK_NOINLINE void *new_aligned_nothrow_miss(size_t bytes, size_t alignment) {
    if (HAK_UNLIKELY(!hak_is_pow2(alignment))) {
        return NULL;
    }
    void *block = hak_request_aligned_slow(alignment, bytes);
    return HAK_LIKELY(block != NULL) ? block : new_nothrow_slow(alignment, bytes);
}

HAK_INLINE void *new_aligned_or(size_t bytes, size_t alignment,
                                void *(*miss)(size_t bytes, size_t alignment)) {
    if (HAK_UNLIKELY(!hak_is_pow2(alignment))) {
        return miss(bytes, alignment);
    }
    void *block = hak_take_aligned(alignment, bytes);
    return HAK_LIKELY(block != NULL) ? block : miss(bytes, alignment);
}

HAK_INLINE void *new_aligned(size_t bytes, size_t alignment) {
    return new_aligned_or(bytes, alignment, new_aligned_miss);
}

HAK_INLINE void *new_aligned_nothrow(size_t bytes, size_t alignment) {
    return new_aligned_or(bytes, alignment, new_aligned_nothrow_miss);
}

/* A call of an operator of the program's that may throw. */
struct program_new {
    void *(*plain)(size_t bytes); /* or NULL */
    void *(*aligned)(size_t bytes, size_t alignment);
    size_t bytes;
    size_t alignment;
    void *block;
};

static void call_program_new(void *context) {
    struct program_new *call = context;
    call->block =
        call->plain != NULL ? call->plain(call->bytes) : call->aligned(call->bytes, call->alignment);
}

/* What the program's operator new returns, NULL when it throws. */
static HAK_COLD void *program_new_nothrow(struct program_new call) {
    return hak_cxx_call_caught(call_program_new, &call) ? call.block : NULL;
}

/* operator new(size_t) */
BASE_NEW(_Znwm, size_t bytes) {
    return new_plain(bytes);
}

/*
 * Whether the program has replaced an operator never changes, so those of the others that are called most do
 * not ask each time. Their gates have of their own what every gate reads, such that nothing passes; what
 * comes to their slow paths asks, and opens them where the answer is no.
 */
static HAK_READ_MOSTLY _Atomic uint8_t array_live_of_slot[HAK_SIZE_SLOTS] = {
    [0 ... HAK_SIZE_SLOTS - 1] = HAK_LIVE_OF_NO_CLASS,
};

static void open_array_new(void) {
    for (size_t slot = 0; slot < HAK_SIZE_SLOTS; slot++) {
        /* relaxed: all who open it store the same */
        hak_atomic_store_relaxed(&array_live_of_slot[slot], hak_live_of_slot[slot]);
    }
}

static HAK_NOINLINE void *new_array_miss(size_t bytes) {
    if (IS_REPLACED(_Znwm)) {
        return CALLED(_Znwm)(bytes);
    }
    /* relaxed: as above; the last one is stored last, or is so again by who finds it closed */
    if (HAK_UNLIKELY(hak_atomic_load_relaxed(&array_live_of_slot[HAK_SIZE_SLOTS - 1]) ==
                     HAK_LIVE_OF_NO_CLASS)) {
        open_array_new();
    }
    return new_miss(bytes);
}

/* operator new[](size_t) */
BASE_NEW(_Znam, size_t bytes) {
    return hak_alloc_gate_by(array_live_of_slot, bytes, new_array_miss);
}

/* operator new(size_t, nothrow_t const &) */
OPERATOR_NEW(_ZnwmRKSt9nothrow_t, size_t bytes, const void *tag) {
    (void)tag;
    if (IS_REPLACED(_Znwm)) {
        return program_new_nothrow((struct program_new){.plain = CALLED(_Znwm), .bytes = bytes});
    }
    return new_nothrow(bytes);
}

/* operator new[](size_t, nothrow_t const &) */
OPERATOR_NEW(_ZnamRKSt9nothrow_t, size_t bytes, const void *tag) {
    (void)tag;
    if (IS_REPLACED(_Znam) || IS_REPLACED(_Znwm)) {
        return program_new_nothrow((struct program_new){.plain = CALLED(_Znam), .bytes = bytes});
    }
    return new_nothrow(bytes);
}

/* operator new(size_t, align_val_t) */
BASE_NEW(_ZnwmSt11align_val_t, size_t bytes, size_t alignment) {
    return new_aligned(bytes, alignment);
}

/* operator new[](size_t, align_val_t) */
BASE_NEW(_ZnamSt11align_val_t, size_t bytes, size_t alignment) {
    if (IS_REPLACED(_ZnwmSt11align_val_t)) {
        return CALLED(_ZnwmSt11align_val_t)(bytes, alignment);
    }
    return new_aligned(bytes, alignment);
}

/* operator new(size_t, align_val_t, nothrow_t const &) */
OPERATOR_NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, size_t bytes, size_t alignment, const void *tag) {
    (void)tag;
    if (IS_REPLACED(_ZnwmSt11align_val_t)) {
        return program_new_nothrow((struct program_new){
            .aligned = CALLED(_ZnwmSt11align_val_t), .bytes = bytes, .alignment = alignment});
    }
    return new_aligned_nothrow(bytes, alignment);
}

/* operator new[](size_t, align_val_t, nothrow_t const &) */
OPERATOR_NEW(_ZnamSt11align_val_tRKSt9nothrow_t, size_t bytes, size_t alignment, const void *tag) {
    (void)tag;
    if (IS_REPLACED(_ZnamSt11align_val_t) || IS_REPLACED(_ZnwmSt11align_val_t)) {
        return program_new_nothrow((struct program_new){
            .aligned = CALLED(_ZnamSt11align_val_t), .bytes = bytes, .alignment = alignment});
    }
    return new_aligned_nothrow(bytes, alignment);
}

/* ---- delete ----------------------------------------------------------------------------------------- */

#define DELETE_NAME       "operator delete"
#define DELETE_ARRAY_NAME "operator delete[]"

/* operator delete(void *) */
BASE_DELETE(_ZdlPv, void *block) {
    hak_free_gate(block, DELETE_NAME);
}

/* hak_registry_minus_home once it is known that neither of the two by which others are defined is replaced:
 * till then no block lies at home for these. */
static HAK_READ_MOSTLY _Atomic uintptr_t delete_minus_home = HAK_MINUS_NO_HOME;

/* False, and nothing is done, if the block does not lie there, or is NULL. */
HAK_ALWAYS_INLINE bool delete_at_home(void *block, const char *function, bool has_claim, size_t bytes) {
    struct hak_at at;
    if (!hak_registry_at_home(hak_registry_at_hand(), &delete_minus_home, block, &at)) {
        return false;
    }
    hak_free_at(at, block, function, has_claim, (struct hak_claim){.bytes = bytes, .align = 0});
    return true;
}

static void delete_elsewhere(void *block, size_t bytes, const char *function);

/* operator delete[](void *) */
BASE_DELETE(_ZdaPv, void *block) {
    if (!delete_at_home(block, DELETE_ARRAY_NAME, false, HAK_CLAIMS_NO_SIZE)) {
        delete_elsewhere(block, HAK_CLAIMS_NO_SIZE, DELETE_ARRAY_NAME);
    }
}

/* operator delete(void *, size_t) */
OPERATOR_DELETE(_ZdlPvm, void *block, size_t bytes) {
    if (!delete_at_home(block, DELETE_NAME, true, bytes)) {
        delete_elsewhere(block, bytes, DELETE_NAME);
    }
}

/* operator delete[](void *, size_t) */
OPERATOR_DELETE(_ZdaPvm, void *block, size_t bytes) {
    if (delete_at_home(block, DELETE_ARRAY_NAME, true, bytes)) {
        return;
    }
    if (IS_REPLACED(_ZdaPv)) {
        CALLED(_ZdaPv)(block);
        return;
    }
    delete_elsewhere(block, bytes, DELETE_ARRAY_NAME);
}

/* What did not pass, and is not for a replaced operator delete[]: asks for the other. */
static HAK_NOINLINE void delete_elsewhere(void *block, size_t bytes, const char *function) {
    if (IS_REPLACED(_ZdlPv)) {
        CALLED(_ZdlPv)(block);
        return;
    }
    uintptr_t minus_home = hak_atomic_load_relaxed(&hak_registry_minus_home); /* relaxed: as in the gates */
    /* relaxed: all who open it store the same */
    if (!IS_REPLACED(_ZdaPv) && hak_atomic_load_relaxed(&delete_minus_home) != minus_home) {
        hak_atomic_store_relaxed(&delete_minus_home, minus_home); /* relaxed: as above */
    }
    hak_free_gate_claiming(block, function, bytes, 0);
}

/* The rest are rare: one call more, and the gate's code once. */

/* operator delete(void *, nothrow_t const &) */
OPERATOR_DELETE(_ZdlPvRKSt9nothrow_t, void *block, const void *tag) {
    (void)tag;
    CALLED(_ZdlPv)(block);
}

/* operator delete[](void *, nothrow_t const &) */
OPERATOR_DELETE(_ZdaPvRKSt9nothrow_t, void *block, const void *tag) {
    (void)tag;
    CALLED(_ZdaPv)(block);
}

/* operator delete(void *, align_val_t) */
BASE_DELETE(_ZdlPvSt11align_val_t, void *block, size_t alignment) {
    hak_free_claiming_as(DELETE_NAME, block, HAK_CLAIMS_NO_SIZE, alignment);
}

/* operator delete[](void *, align_val_t) */
BASE_DELETE(_ZdaPvSt11align_val_t, void *block, size_t alignment) {
    if (IS_REPLACED(_ZdlPvSt11align_val_t)) {
        CALLED(_ZdlPvSt11align_val_t)(block, alignment);
        return;
    }
    hak_free_claiming_as(DELETE_ARRAY_NAME, block, HAK_CLAIMS_NO_SIZE, alignment);
}

/* What is left has a claim: what the program has in their place, or the gate. */
static void delete_claiming(void *block, size_t bytes, size_t alignment) {
    if (IS_REPLACED(_ZdlPvSt11align_val_t)) {
        CALLED(_ZdlPvSt11align_val_t)(block, alignment);
        return;
    }
    hak_free_claiming_as(DELETE_NAME, block, bytes, alignment);
}

static void delete_array_claiming(void *block, size_t bytes, size_t alignment) {
    if (IS_REPLACED(_ZdaPvSt11align_val_t) || IS_REPLACED(_ZdlPvSt11align_val_t)) {
        CALLED(_ZdaPvSt11align_val_t)(block, alignment);
        return;
    }
    hak_free_claiming_as(DELETE_ARRAY_NAME, block, bytes, alignment);
}

/* operator delete(void *, size_t, align_val_t) */
OPERATOR_DELETE(_ZdlPvmSt11align_val_t, void *block, size_t bytes, size_t alignment) {
    delete_claiming(block, bytes, alignment);
}

/* operator delete[](void *, size_t, align_val_t) */
OPERATOR_DELETE(_ZdaPvmSt11align_val_t, void *block, size_t bytes, size_t alignment) {
    delete_array_claiming(block, bytes, alignment);
}

/* operator delete(void *, align_val_t, nothrow_t const &) */
OPERATOR_DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, void *block, size_t alignment, const void *tag) {
    (void)tag;
    delete_claiming(block, HAK_CLAIMS_NO_SIZE, alignment);
}

/* operator delete[](void *, align_val_t, nothrow_t const &) */
OPERATOR_DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t, void *block, size_t alignment, const void *tag) {
    (void)tag;
    delete_array_claiming(block, HAK_CLAIMS_NO_SIZE, alignment);
}

#endif
