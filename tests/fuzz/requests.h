/*
 * requests.h - the many names of allocation and free, chosen by a byte of the input, and what each owes its
 * caller.
 */
#ifndef HAK_TESTS_FUZZ_REQUESTS_H
#define HAK_TESTS_FUZZ_REQUESTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct request {
    size_t bytes; /* in: wanted; out: what the call was given, a product or a rounded size */
    uint8_t argument;
    /* out */
    size_t align;       /* asked for, 0: none */
    int error;          /* as the call reported it */
    int expected_error; /* 0: none, but ENOMEM where memory is short */
    bool is_zeroed;
    bool is_plain; /* its usable size is hak_good_size() */
    void *block;
};

void request_plain(struct request *request);
void request_calloc(struct request *request);
void request_aligned(struct request *request);
void request_resize(struct request *request, void *block);

/* Frees the block; the sized and aligned names are given this size and alignment. */
void request_free(uint8_t argument, void *block, size_t bytes, size_t align);

/* Which of the checks of statistics, mallinfo, walks and hak_verify check_books() makes. */
enum check_books {
    CHECK_BOOKS_EXACT = 16,  /* hak_verify and statistics, nothing live expected */
    CHECK_BOOKS_MAPPED = 17, /* nothing live, and little mapped */
};

/* Compares hakmem's books with the model's; `which` below 16 is a set of bits. */
void check_books(unsigned which);

#endif
