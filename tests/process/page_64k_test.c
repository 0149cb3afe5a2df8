/*
 * page_64k_test.c - hakmem where an OS page is 64 KiB, as on some aarch64 systems (simulated).
 */
#define PAGE_BYTES ((size_t)64 * 1024)

#include "page_size_cases.h"
