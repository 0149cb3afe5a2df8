/*
 * page_16k_test.c - hakmem where an OS page is 16 KiB, as on some aarch64 systems (simulated).
 */
#define PAGE_BYTES ((size_t)16 * 1024)

#include "page_size_cases.h"
