/*
 * requests.c - see requests.h.
 */
#include "fuzz/requests.h"
#include "fuzz/own.h"
#include "fuzz/sizes.h"

#include <errno.h>
#include <stdint.h>
#include <unistd.h>

static bool is_power_of_two(size_t value) {
    return value != 0 && (value & (value - 1)) == 0;
}

static size_t page_bytes(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

void request_plain(struct request *request) {
    size_t bytes = request->bytes;
    request->is_plain = true;
    switch (request->argument % 6) {
    case 0:
        request->block = hak_malloc(bytes);
        break;
    case 1:
        request->block = own_realloc(NULL, bytes);
        break;
    case 2:
        request->block = own__ZnwmRKSt9nothrow_t(bytes, NULL);
        break;
    case 3:
        request->block = own__ZnamRKSt9nothrow_t(bytes, NULL);
        break;
    default:
        request->block = own_malloc(bytes);
        break;
    }
    request->error = errno;
}

/* As count * size with a small count, or with one whose product overflows. */
void request_calloc(struct request *request) {
    size_t count = (size_t)1 << (request->argument & 63);
    if ((request->argument & 64) != 0) {
        count = (request->argument & 7) + 1;
        request->bytes = request->bytes / count * count;
    }
    size_t each_bytes =
        (request->argument & 64) != 0 ? request->bytes / count : request->bytes >> (request->argument & 31);
    if (__builtin_mul_overflow(count, each_bytes, &request->bytes)) {
        request->expected_error = ENOMEM;
    } else if (request->bytes > (size_t)64 << 20 && request->bytes < (size_t)4 << 30) {
        each_bytes = 0; /* more than the model has room for */
        request->bytes = 0;
    }
    request->is_zeroed = true;
    request->is_plain = true;
    request->block =
        (request->argument & 128) != 0 ? hak_calloc(count, each_bytes) : own_calloc(count, each_bytes);
    request->error = errno;
}

void request_aligned(struct request *request) {
    size_t bytes = request->bytes;
    size_t align = alignment_of_code(request->argument);
    bool is_power = is_power_of_two(align);
    int saved_errno = errno;
    request->align = is_power ? align : 0;
    switch (bytes % 8) {
    case 0:
        request->expected_error = is_power ? 0 : EINVAL;
        request->block = hak_aligned_alloc(align, bytes);
        break;
    case 1:
        request->expected_error = is_power ? 0 : EINVAL;
        request->block = own_aligned_alloc(align, bytes);
        break;
    case 2: /* rounds up to a power of two; the highest there is cannot be had */
        request->expected_error = align > (size_t)1 << 63 ? EINVAL : 0;
        request->align = align;
        while (request->align != 0 && !is_power_of_two(request->align)) {
            request->align += request->align & -request->align;
        }
        request->block = own_memalign(align, bytes);
        break;
    case 3:
        request->align = page_bytes();
        request->block = own_valloc(bytes);
        break;
    case 4:
        request->align = page_bytes();
        request->block = own_pvalloc(bytes);
        break;
    case 5:
        request->block = own__ZnwmSt11align_val_tRKSt9nothrow_t(bytes, align, NULL);
        request->expected_error = is_power ? 0 : errno; /* C++ sets none */
        break;
    case 6:
        request->block = own__ZnamSt11align_val_tRKSt9nothrow_t(bytes, align, NULL);
        request->expected_error = is_power ? 0 : errno;
        break;
    default:
        request->expected_error = is_power && align % sizeof(void *) == 0 ? 0 : EINVAL;
        request->error = own_posix_memalign(&request->block, align, bytes);
        errno = request->error == 0 || errno != saved_errno ? errno : request->error; /* it sets none */
        break;
    }
    request->error = errno;
}

void request_resize(struct request *request, void *block) {
    size_t bytes = request->bytes;
    size_t count = (request->argument & 7) + 1;
    switch (request->argument >> 3 & 3) {
    case 0:
        request->block = hak_realloc(block, bytes);
        break;
    case 1:
        request->bytes = bytes / count * count;
        request->block = own_reallocarray(block, count, bytes / count);
        break;
    case 2:
        if (request->argument >> 5 == 7) { /* a product that overflows */
            request->expected_error = ENOMEM;
            request->block = own_reallocarray(block, SIZE_MAX / count, count + 1);
            break;
        }
        request->block = own_realloc(block, bytes);
        break;
    default:
        request->block = own_realloc(block, bytes);
        break;
    }
    request->error = errno;
}

void request_free(uint8_t argument, void *block, size_t bytes, size_t align) {
    switch (argument % 16) {
    case 0:
        hak_free(block);
        break;
    case 1:
        own_cfree(block);
        break;
    case 2:
        own_free_sized(block, bytes);
        break;
    case 3:
        own_free_aligned_sized(block, align, bytes);
        break;
    case 4:
        own__ZdlPv(block);
        break;
    case 5:
        own__ZdaPv(block);
        break;
    case 6:
        own__ZdlPvm(block, bytes);
        break;
    case 7:
        own__ZdaPvm(block, bytes);
        break;
    case 8:
        own__ZdlPvSt11align_val_t(block, align);
        break;
    case 9:
        own__ZdaPvmSt11align_val_t(block, bytes, align);
        break;
    case 10:
        (void)own_realloc(block, 0);
        break;
    default:
        own_free(block);
        break;
    }
}
