/*
 * sizes.c - see sizes.h.
 */
#include "fuzz/sizes.h"
#include "meta/classes.h"

#define KIB ((size_t)1024)
#define MIB (KIB * KIB)

/* `value` - 8 to `value` + 7. */
static size_t around(size_t value, unsigned step) {
    return value + (step & 15) - (value >= 8 ? 8 : 0);
}

size_t size_of_code(uint16_t code) {
    size_t value = code & 0xFFF;
    switch (code >> 12) {
    case 0:
    case 1:
        return value;
    case 2:
    case 3:
    case 4:
        return hak_class_block_bytes[value % HAK_CLASS_COUNT] + value / HAK_CLASS_COUNT % 5 - 2;
    case 5:
        return value * 8;
    case 6:
        return around((value & 0xFF) * 4 * KIB, (unsigned)(value >> 8));
    case 7:
        return 30 * KIB + value;
    case 8:
        return around((value & 0xFF) * 64 * KIB, (unsigned)(value >> 8));
    case 9:
        return MIB - 2 * KIB + value;
    case 10:
        return 2 * MIB - 2 * KIB + value;
    case 11:
        return around((value & 0x3F) * MIB, (unsigned)(value >> 8));
    case 12:
        return value * 16;
    case 13:
        return value % 64;
    case 14:
        return value % 1025;
    default: /* 2^n and what lies around it, up to 2^64 - 1 */
        return ((size_t)1 << (value & 63)) + (value >> 6) - 32;
    }
}

size_t alignment_of_code(uint8_t code) {
    size_t power = (size_t)1 << (code & 31);
    switch (code >> 5) {
    case 7:
        return (size_t)1 << (code & 31) << 32;
    case 6:
        return power * 3;
    case 5:
        return code & 31;
    default:
        return (size_t)1 << (code % 22); /* up to 2 MiB */
    }
}
