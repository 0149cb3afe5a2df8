/*
 * pointers_child.c - pointers_give() of pointers.h: one call in a child process, and what must come of it.
 */
#include "base/config.h"
#include "fuzz/kernel.h"
#include "fuzz/own.h"
#include "fuzz/pointers.h"
#include "fuzz/waiting.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIME_LIMIT_S   60
#define SAID_BYTES_MAX 4096u
#define RESIZED_BYTES  5000u

/* What sized and aligned forms say of the block; only checked mode looks. */
static size_t claimed_bytes, claimed_align;

static void give_sized(void *pointer) {
    own_free_sized(pointer, claimed_bytes);
}

static void give_aligned_sized(void *pointer) {
    own_free_aligned_sized(pointer, claimed_align, claimed_bytes);
}

static void delete_sized(void *pointer) {
    own__ZdlPvm(pointer, claimed_bytes);
}

static void delete_array_sized(void *pointer) {
    own__ZdaPvm(pointer, claimed_bytes);
}

static void delete_nothrow(void *pointer) {
    own__ZdlPvRKSt9nothrow_t(pointer, NULL);
}

static void delete_array_nothrow(void *pointer) {
    own__ZdaPvRKSt9nothrow_t(pointer, NULL);
}

static void delete_aligned(void *pointer) {
    own__ZdlPvSt11align_val_t(pointer, claimed_align);
}

static void delete_array_aligned(void *pointer) {
    own__ZdaPvSt11align_val_t(pointer, claimed_align);
}

static void delete_aligned_sized(void *pointer) {
    own__ZdlPvmSt11align_val_t(pointer, claimed_bytes, claimed_align);
}

static void delete_array_aligned_sized(void *pointer) {
    own__ZdaPvmSt11align_val_t(pointer, claimed_bytes, claimed_align);
}

static void resize_to_nothing(void *pointer) {
    if (own_realloc(pointer, 0) != NULL && pointer != NULL) {
        _exit(3);
    }
}

static void *resize_array(void *pointer, size_t bytes) {
    return own_reallocarray(pointer, bytes, 1);
}

static const struct function {
    const char *name; /* in the fatal line */
    void (*give)(void *pointer);
    void *(*resize)(void *pointer, size_t bytes);
    size_t (*ask)(const void *pointer);
} functions[] = {
    {.name = "free", .give = own_free},
    {.name = "hak_free", .give = hak_free},
    {.name = "cfree", .give = own_cfree},
    {.name = "free_sized", .give = give_sized},
    {.name = "free_aligned_sized", .give = give_aligned_sized},
    {.name = "operator delete", .give = own__ZdlPv},
    {.name = "operator delete[]", .give = own__ZdaPv},
    {.name = "operator delete", .give = delete_sized},
    {.name = "operator delete[]", .give = delete_array_sized},
    {.name = "operator delete", .give = delete_nothrow},
    {.name = "operator delete[]", .give = delete_array_nothrow},
    {.name = "operator delete", .give = delete_aligned},
    {.name = "operator delete[]", .give = delete_array_aligned},
    {.name = "operator delete", .give = delete_aligned_sized},
    {.name = "operator delete[]", .give = delete_array_aligned_sized},
    {.name = "realloc", .give = resize_to_nothing},
    {.name = "realloc", .resize = own_realloc},
    {.name = "hak_realloc", .resize = hak_realloc},
    {.name = "reallocarray", .resize = resize_array},
    {.name = "malloc_usable_size", .ask = own_malloc_usable_size},
    {.name = "hak_usable_size", .ask = hak_usable_size},
};

/* ---- in the child ----------------------------------------------------------------------------------- */

static void require(bool is_as_expected) {
    if (!is_as_expected) {
        _exit(3);
    }
}

/* Does not come back; dies where the pointer is no block. */
static void call(const struct function *function, void *pointer, const struct shadow_block *block) {
    if (function->give != NULL) {
        function->give(pointer);
        require(!hak_owns(pointer));
    } else if (function->ask != NULL) {
        require(function->ask(pointer) == (block != NULL ? block->usable_bytes : 0));
    } else {
        unsigned char first = block != NULL ? *block->start : 0;
        unsigned char *resized = function->resize(pointer, RESIZED_BYTES);
        require(resized != NULL && hak_owns(resized) && hak_usable_size(resized) >= RESIZED_BYTES);
        require(block == NULL || block->bytes == 0 || *resized == first);
        hak_free(resized);
    }
    void *fresh = hak_malloc(100);
    require(fresh != NULL && hak_owns(fresh));
    hak_free(fresh);
    _exit(hak_verify(NULL, 0) == 0 ? 0 : 4);
}

static void become_child(void) {
    static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGALRM, SIGILL, SIGTRAP};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        signal(signals[i], SIG_DFL);
    }
    alarm(TIME_LIMIT_S);
}

/* ---- what came of it -------------------------------------------------------------------------------- */

/* The text goes on with `part`; returns what follows, NULL if it does not. */
static const char *after(const char *text, const char *part) {
    return text != NULL && strncmp(text, part, strlen(part)) == 0 ? text + strlen(part) : NULL;
}

/* The same, and moves on only where it does. */
static bool skips(const char **text, const char *part) {
    const char *rest = after(*text, part);
    *text = rest != NULL ? rest : *text;
    return rest != NULL;
}

/* What follows the line: nothing, or where records are kept lines that are indented. */
static void check_rest(const char *said, const char *rest) {
    bool has_report = fuzz_is_checked() || fuzz_is_sampling();
    FUZZ_CHECK(has_report == (*rest != '\0'));
    for (; rest != NULL && *rest != '\0'; rest = strchr(rest, '\n') + 1) {
        bool is_whole = strchr(rest, '\n') != NULL;
        FUZZ_CHECK(strncmp(rest, "  ", 2) == 0);
        if (!is_whole) {
            FUZZ_CHECK(strlen(said) == SAID_BYTES_MAX - 1); /* there was no room for more */
            break;
        }
    }
}

static void check_line(const char *said, const struct function *function, const void *pointer,
                       const struct verdict *verdict) {
    char number[64];
    bool frees = function->give != NULL;
    const char *freed = frees ? "double free of" : "use of freed block";
    const char *rest = after(after(after(said, "hakmem: "), function->name), "(): ");
    FUZZ_CHECK(rest != NULL);
    bool is_remembered = verdict->may_be_freed && after(rest, freed) != NULL;
    if ((verdict->text != NULL || verdict->is_freed) && !is_remembered) {
        rest = after(rest, verdict->is_freed ? freed : verdict->text);
        FUZZ_CHECK(rest != NULL);
    } else {
        FUZZ_CHECK(skips(&rest, freed) || skips(&rest, "invalid pointer") ||
                   skips(&rest, "pointer not from this heap"));
    }
    snprintf(number, sizeof number, " 0x%jx", (uintmax_t)(uintptr_t)pointer);
    rest = after(rest, number);
    FUZZ_CHECK(rest != NULL);
    if (verdict->block_bytes != 0 && !is_remembered) {
        snprintf(number, sizeof number, ", %zu-byte block\n", verdict->block_bytes);
        FUZZ_CHECK(after(rest, number) != NULL);
    } else if (verdict->text != NULL && !is_remembered) {
        FUZZ_CHECK(*rest == '\n');
    } else if (*rest == ',') {
        rest = after(rest, ", ");
        FUZZ_CHECK(after(rest + strspn(rest, "0123456789"), "-byte block\n") != NULL);
    }
    check_rest(said, strchr(said, '\n') + 1);
}

void pointers_give(unsigned number, void *pointer, const struct shadow_block *block,
                   const struct verdict *verdict) {
    static char *said;
    const struct function *function = &functions[number % (sizeof functions / sizeof functions[0])];
    int status = 0;
    if (said == NULL) {
        said = mmap(NULL, SAID_BYTES_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        FUZZ_CHECK(said != MAP_FAILED);
    }
    claimed_bytes = block != NULL && fuzz_is_checked() ? block->usable_bytes : 1;
    claimed_align = block != NULL && fuzz_is_checked() ? block->align : HAK_ALIGN_BYTES;
    kernel_capture(said, SAID_BYTES_MAX);
    pid_t pid = fork();
    FUZZ_CHECK(pid >= 0);
    if (pid == 0) {
        become_child();
        call(function, pointer, block);
    }
    kernel_capture(NULL, 0);
    fuzz_show(said);
    FUZZ_CHECK(waitpid(pid, &status, 0) == pid);
    if (block != NULL || pointer == NULL) {
        FUZZ_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        FUZZ_CHECK(said[0] == '\0');
    } else {
        FUZZ_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        check_line(said, function, pointer, verdict);
    }
    fuzz_show(NULL);
}
