/*
 * cgroup.h - how much memory the container lets the process have.
 */
#ifndef HAK_OS_CGROUP_H
#define HAK_OS_CGROUP_H

#include "base/compiler.h"
#include <stdint.h>

/*
 * The lowest memory limit of the process's control group and those above it, in bytes; 0 when there is none
 * or none can be read. Version 1 and 2; `root` stands before every path: "" but for tests. For the
 * constructor: opens some files, one at a time, and leaves nothing open. Allocates nothing.
 */
HAK_COLD uint64_t hak_cgroup_limit_bytes(const char *root);

#endif
