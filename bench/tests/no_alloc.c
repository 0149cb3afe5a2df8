// A shared library without malloc: preloading it changes nothing, which the runner must notice.
int bench_no_alloc(void);
int bench_no_alloc(void) {
    return 0;
}
