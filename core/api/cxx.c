/*
 * cxx.c - the twenty operators new and delete of C++, in C under their mangled names.
 *
 * What the standard asks of them ([new.delete]): a failed new calls the new-handler as long as there is one
 * and tries again, then throws std::bad_alloc; the nothrow forms return NULL instead. An alignment that is no
 * power of two is undefined; as in libstdc++ it fails at once. Sizes and alignments given to delete are
 * promises, looked at in checked mode alone. Any thread.
 */
#include "api/cxx_catch.h"
#include "api/cxx_runtime.h"
#include "api/gates.h"
#include "base/bits.h"
#include "base/config.h"
#include "heap/front.h"

/* ThreadSanitizer brings operators of its own. */
#if !HAK_TSAN

/* Mangled names are plain identifiers of C. size_t is `m` in them wherever hakmem runs. */
#define OPERATOR_NEW(mangled, ...)                                                                           \
    HAK_API void *mangled(__VA_ARGS__);                                                                      \
    void *mangled(__VA_ARGS__)
#define OPERATOR_DELETE(mangled, ...)                                                                        \
    HAK_API void mangled(__VA_ARGS__);                                                                       \
    void mangled(__VA_ARGS__)

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

/* The same; returns NULL instead of throwing, also when the handler throws. */
static HAK_COLD void *new_nothrow_slow(size_t alignment, size_t bytes) {
    for (;;) {
        hak_new_handler handler = hak_cxx_new_handler();
        if (handler == NULL || !hak_cxx_call_caught(handler)) {
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

static void *new_aligned(size_t bytes, size_t alignment) {
    if (HAK_UNLIKELY(!hak_is_pow2(alignment))) {
        hak_cxx_throw_bad_alloc();
    }
    void *block = hak_aligned_alloc(alignment, bytes);
    return HAK_LIKELY(block != NULL) ? block : new_slow(alignment, bytes);
}

static void *new_aligned_nothrow(size_t bytes, size_t alignment) {
    if (HAK_UNLIKELY(!hak_is_pow2(alignment))) {
        return NULL;
    }
    void *block = hak_aligned_alloc(alignment, bytes);
    return HAK_LIKELY(block != NULL) ? block : new_nothrow_slow(alignment, bytes);
}

/* operator new(size_t) */
OPERATOR_NEW(_Znwm, size_t bytes) {
    return new_plain(bytes);
}

/* operator new[](size_t) */
OPERATOR_NEW(_Znam, size_t bytes) {
    return new_plain(bytes);
}

/* operator new(size_t, nothrow_t const &) */
OPERATOR_NEW(_ZnwmRKSt9nothrow_t, size_t bytes, const void *tag) {
    (void)tag;
    return new_nothrow(bytes);
}

/* operator new[](size_t, nothrow_t const &) */
OPERATOR_NEW(_ZnamRKSt9nothrow_t, size_t bytes, const void *tag) {
    (void)tag;
    return new_nothrow(bytes);
}

/* operator new(size_t, align_val_t) */
OPERATOR_NEW(_ZnwmSt11align_val_t, size_t bytes, size_t alignment) {
    return new_aligned(bytes, alignment);
}

/* operator new[](size_t, align_val_t) */
OPERATOR_NEW(_ZnamSt11align_val_t, size_t bytes, size_t alignment) {
    return new_aligned(bytes, alignment);
}

/* operator new(size_t, align_val_t, nothrow_t const &) */
OPERATOR_NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, size_t bytes, size_t alignment, const void *tag) {
    (void)tag;
    return new_aligned_nothrow(bytes, alignment);
}

/* operator new[](size_t, align_val_t, nothrow_t const &) */
OPERATOR_NEW(_ZnamSt11align_val_tRKSt9nothrow_t, size_t bytes, size_t alignment, const void *tag) {
    (void)tag;
    return new_aligned_nothrow(bytes, alignment);
}

/* ---- delete ----------------------------------------------------------------------------------------- */

#define DELETE_NAME       "operator delete"
#define DELETE_ARRAY_NAME "operator delete[]"

/* operator delete(void *) */
OPERATOR_DELETE(_ZdlPv, void *block) {
    hak_free_gate(block, DELETE_NAME);
}

/* operator delete[](void *) */
OPERATOR_DELETE(_ZdaPv, void *block) {
    hak_free_gate(block, DELETE_ARRAY_NAME);
}

/* operator delete(void *, size_t) */
OPERATOR_DELETE(_ZdlPvm, void *block, size_t bytes) {
    hak_free_gate_claiming(block, DELETE_NAME, bytes, 0);
}

/* operator delete[](void *, size_t) */
OPERATOR_DELETE(_ZdaPvm, void *block, size_t bytes) {
    hak_free_gate_claiming(block, DELETE_ARRAY_NAME, bytes, 0);
}

/* The rest are rare: one call more, and the gate's code once. */

/* operator delete(void *, nothrow_t const &) */
OPERATOR_DELETE(_ZdlPvRKSt9nothrow_t, void *block, const void *tag) {
    (void)tag;
    hak_free_as(DELETE_NAME, block);
}

/* operator delete[](void *, nothrow_t const &) */
OPERATOR_DELETE(_ZdaPvRKSt9nothrow_t, void *block, const void *tag) {
    (void)tag;
    hak_free_as(DELETE_ARRAY_NAME, block);
}

/* operator delete(void *, align_val_t) */
OPERATOR_DELETE(_ZdlPvSt11align_val_t, void *block, size_t alignment) {
    hak_free_claiming_as(DELETE_NAME, block, HAK_CLAIMS_NO_SIZE, alignment);
}

/* operator delete[](void *, align_val_t) */
OPERATOR_DELETE(_ZdaPvSt11align_val_t, void *block, size_t alignment) {
    hak_free_claiming_as(DELETE_ARRAY_NAME, block, HAK_CLAIMS_NO_SIZE, alignment);
}

/* operator delete(void *, size_t, align_val_t) */
OPERATOR_DELETE(_ZdlPvmSt11align_val_t, void *block, size_t bytes, size_t alignment) {
    hak_free_claiming_as(DELETE_NAME, block, bytes, alignment);
}

/* operator delete[](void *, size_t, align_val_t) */
OPERATOR_DELETE(_ZdaPvmSt11align_val_t, void *block, size_t bytes, size_t alignment) {
    hak_free_claiming_as(DELETE_ARRAY_NAME, block, bytes, alignment);
}

/* operator delete(void *, align_val_t, nothrow_t const &) */
OPERATOR_DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, void *block, size_t alignment, const void *tag) {
    (void)tag;
    hak_free_claiming_as(DELETE_NAME, block, HAK_CLAIMS_NO_SIZE, alignment);
}

/* operator delete[](void *, align_val_t, nothrow_t const &) */
OPERATOR_DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t, void *block, size_t alignment, const void *tag) {
    (void)tag;
    hak_free_claiming_as(DELETE_ARRAY_NAME, block, HAK_CLAIMS_NO_SIZE, alignment);
}

#endif
