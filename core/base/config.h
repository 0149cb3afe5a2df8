/*
 * config.h - the constants that every floor agrees on.
 *
 * What a newcomer needs to read the rest: block (what the caller gets), class (a block size), unit (64 KiB),
 * slab (one to eight units of blocks of one class), SuperSlab (2 MiB, 32 units), header (one byte a block,
 * out of band), OS page (what the kernel maps).
 */
#ifndef HAK_BASE_CONFIG_H
#define HAK_BASE_CONFIG_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#ifndef HAKMEM_BUILD_RELEASE
#error "HAKMEM_BUILD_RELEASE must be 0 (debug) or 1 (release)"
#endif
#ifndef HAKMEM_DEBUG_COUNTERS
#define HAKMEM_DEBUG_COUNTERS (!HAKMEM_BUILD_RELEASE)
#endif

/* ThreadSanitizer owns malloc and models neither fences nor vector loads: see core/README.md. */
#if defined(__SANITIZE_THREAD__)
#define HAK_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAK_TSAN 1
#endif
#endif
#ifndef HAK_TSAN
#define HAK_TSAN 0
#endif

/*
 * The OS page's size as a power of two where it is always the same; 0: read at run time (os/os.h). So in the
 * debug flavour, which tests show larger pages than the architecture has.
 */
#if defined(__x86_64__) && HAKMEM_BUILD_RELEASE
#define HAK_KNOWN_PAGE_SHIFT 12u
#else
#define HAK_KNOWN_PAGE_SHIFT 0u
#endif

#define HAK_ALIGN_BYTES 16u /* every block, whatever its size */

#define HAK_UNIT_SHIFT          16u
#define HAK_UNIT_BYTES          ((size_t)1 << HAK_UNIT_SHIFT)
#define HAK_SUPERSLAB_SHIFT     21u
#define HAK_SUPERSLAB_BYTES     ((size_t)1 << HAK_SUPERSLAB_SHIFT)
#define HAK_UNITS_PER_SUPERSLAB 32u
#define HAK_SLAB_UNITS_MAX      8u

#define HAK_CLASS_COUNT     44u
#define HAK_MID_MAX_BYTES   32768u
#define HAK_SLAB_BLOCKS_MAX 4096u

#define HAK_CACHE_LINE_BYTES 64u

/* User addresses: what the registry can answer for. Larger values are "not ours" without a look-up. */
#if defined(__x86_64__)
#define HAK_ADDRESS_BITS 47u
#else
#define HAK_ADDRESS_BITS 48u
#endif

/* No object is larger than this: there are no more addresses, and giving caches back would not help. */
#define HAK_BLOCK_BYTES_MAX ((size_t)1 << HAK_ADDRESS_BITS)

/*
 * Header values. LIVE is HAK_HEADER_LIVE + class. Who may change which into which: core/README.md, "the
 * lease".
 */
#define HAK_HEADER_NEVER       0x00u /* the block was never handed out since its slab was set up */
#define HAK_HEADER_FREE        0x01u /* in the slab, nobody's */
#define HAK_HEADER_CACHED      0x02u /* in some thread's unified cache */
#define HAK_HEADER_CACHED_ZERO 0x03u /* the same, and the block's bytes are known to be zero */
#define HAK_HEADER_TAIL        0x04u /* part of a block of another class that begins before: slab/guests.h */
#define HAK_HEADER_LIVE        0xA0u /* + class: the caller's */

_Static_assert(HAK_SUPERSLAB_BYTES == HAK_UNITS_PER_SUPERSLAB * HAK_UNIT_BYTES, "units tile a SuperSlab");
_Static_assert(HAK_HEADER_LIVE + HAK_CLASS_COUNT <= 0x100u, "a live header must fit one byte");
_Static_assert(sizeof(void *) == 8, "hakmem needs a 64-bit address space");

#endif
