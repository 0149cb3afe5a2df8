/*
 * header_map.h - header maps sixteen bytes at a time.
 *
 * A map is read in vectors. It is written byte by byte, since a vector store would erase a FREE that another
 * thread stores meanwhile; but for a row of bytes that all are FREE or NEVER, which no other thread changes.
 * The load of a FREE byte must be an acquire, so that the next owner of the block sees what the last one did
 * before. x86 loads are; machines without SSE2 load 64-bit words with acquire. ThreadSanitizer knows neither
 * vector loads nor that a load of eight bytes meets a store of one: its builds read and write bytes.
 */
#ifndef HAK_SLAB_HEADER_MAP_H
#define HAK_SLAB_HEADER_MAP_H

#include "base/atomic.h"
#include "base/bits.h"
#include "base/config.h"
#include <string.h>

#if defined(__SSE2__) && !HAK_TSAN
#include <emmintrin.h>
#endif

#define HAK_MAP_GROUP_BLOCKS 16u

typedef _Atomic uint8_t hak_header;

#if defined(__SSE2__) && !HAK_TSAN

/* Bit i is set when header i of the group has the value; `group` is 16-byte aligned. */
HAK_INLINE uint32_t hak_headers_equal(const hak_header *group, uint8_t value) {
    __m128i headers = _mm_load_si128((const __m128i *)(const void *)group);
    uint32_t mask = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(headers, _mm_set1_epi8((char)value)));
    /* acquire: pairs with the FREE stores in cached_to_free(). The processor loads in order; the fence
     * keeps the compiler from moving what follows above the load. */
    hak_atomic_compiler_fence_acquire();
    return mask;
}

#elif HAK_TSAN

HAK_INLINE uint32_t hak_headers_equal(const hak_header *group, uint8_t value) {
    uint32_t mask = 0;
    for (unsigned i = 0; i < HAK_MAP_GROUP_BLOCKS; i++) {
        /* acquire: pairs with the FREE stores in cached_to_free() */
        mask |= (uint32_t)(hak_atomic_load_acquire(&group[i]) == value) << i;
    }
    return mask;
}

#else

/* One bit per byte of `word` that is zero, in bits 0-7. */
HAK_INLINE uint32_t hak_zero_bytes(uint64_t word) {
    const uint64_t low_bits = UINT64_C(0x7F7F7F7F7F7F7F7F);
    uint64_t zero = ~(((word & low_bits) + low_bits) | word | low_bits); /* 0x80 in each zero byte */
    return (uint32_t)(((zero >> 7) * UINT64_C(0x0102040810204080)) >> 56);
}

HAK_INLINE uint32_t hak_headers_equal(const hak_header *group, uint8_t value) {
    const uint64_t pattern = UINT64_C(0x0101010101010101) * value;
    const _Atomic uint64_t *words = (const _Atomic uint64_t *)(const void *)group;
    /* acquire: pairs with the FREE stores in cached_to_free() */
    uint32_t low = hak_zero_bytes(hak_atomic_load_acquire(&words[0]) ^ pattern);
    uint32_t high =
        hak_zero_bytes(hak_atomic_load_acquire(&words[1]) ^ pattern); /* acquire: pairs as above */
    return low | high << 8;
}

#endif

/* Stores the value to `count` headers in a row that all are FREE or NEVER, for who holds the slab's lease. */
HAK_INLINE void hak_headers_fill(hak_header *first, uint8_t value, unsigned count) {
    if (!HAK_TSAN) {
        memset((void *)first, value, count);
        return;
    }
    for (unsigned i = 0; i < count; i++) {
        /* relaxed: only the lease holder turns them into anything; the release of the lease publishes it */
        hak_atomic_store_relaxed(&first[i], value);
    }
}

#endif
