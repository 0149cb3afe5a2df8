/*
 * tls_destructor.cc - a library with a thread_local object, which allocates when it is made and when it is
 * destroyed.
 */
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

struct keeper {
    std::vector<void *> blocks;
    ~keeper() {
        void *last = malloc(700);
        for (void *block : blocks) {
            free(block);
        }
        free(last);
    }
};

thread_local keeper kept;

} // namespace

/* Keeps a block of that size until the thread ends; returns how many it has kept, 0 when out of memory. */
extern "C" size_t plugin_keep(size_t bytes) {
    void *block = malloc(bytes);
    if (block == nullptr) {
        return 0;
    }
    memset(block, 0x42, bytes);
    kept.blocks.push_back(block);
    return kept.blocks.size();
}
