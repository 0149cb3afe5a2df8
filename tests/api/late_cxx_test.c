/*
 * late_cxx_test.c - a C program that opens a C++ library late, RTLD_LOCAL, as python opens its extensions.
 *
 * libstdc++ is not there when hakmem is bound, yet a failing new must find it, throw and call the handler.
 */
#include "support/target.h"
#include "support/test.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *open_plugin(int flags) {
    char path[4096];
    const char *folder = getenv("TEST_PLAIN");
    snprintf(path, sizeof path, "%s/plugins/throws.so", folder != NULL ? folder : ".");
    void *handle = dlopen(path, flags);
    if (handle == NULL) {
        print_error("%s\n", dlerror());
    }
    return handle;
}

static void check_plugin(int flags) {
    int (*throws_count)(void);
    unsigned (*handler_calls)(void);
    size_t (*work)(void);
    void *handle = open_plugin(flags);
    assert_non_null(handle);
    void *symbols[] = {dlsym(handle, "throws_count"), dlsym(handle, "throws_handler_calls"),
                       dlsym(handle, "throws_work")};
    assert_true(symbols[0] != NULL && symbols[1] != NULL && symbols[2] != NULL);
    memcpy(&throws_count, &symbols[0], sizeof symbols[0]);
    memcpy(&handler_calls, &symbols[1], sizeof symbols[1]);
    memcpy(&work, &symbols[2], sizeof symbols[2]);
    assert_int_equal(work(), 49500);
    assert_int_equal(throws_count(), 4);
    assert_int_equal(handler_calls(), 2);
    assert_int_equal(throws_count(), 4);
}

static void libstdcxx_is_not_loaded_at_first(void **state) {
    (void)state;
    assert_null(dlsym(RTLD_DEFAULT, "__cxa_throw"));
}

static void new_throws_when_libstdcxx_came_late_and_local(void **state) {
    (void)state;
    check_plugin(RTLD_NOW | RTLD_LOCAL);
}

static void new_throws_when_libstdcxx_came_late_and_lazy(void **state) {
    (void)state;
    check_plugin(RTLD_LAZY | RTLD_GLOBAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(libstdcxx_is_not_loaded_at_first),
        cmocka_unit_test(new_throws_when_libstdcxx_came_late_and_local),
        cmocka_unit_test(new_throws_when_libstdcxx_came_late_and_lazy),
    };
    return cmocka_run_group_tests_name("late C++", tests, NULL, heap_is_sound);
}
