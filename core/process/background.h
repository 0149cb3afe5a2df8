/*
 * background.h - the helper thread of HAKMEM_BACKGROUND=1: lets raised floors fall and gives back what is
 * beyond them, and free pages between survivors, in time, also while the program does nothing; frees leave
 * that to it (slab/retention.h).
 */
#ifndef HAK_PROCESS_BACKGROUND_H
#define HAK_PROCESS_BACKGROUND_H

#include "base/compiler.h"

/*
 * Starts the thread: once, from the constructor, since a thread cannot be started from free(), which the C
 * library calls while it holds locks of its own. It has every signal blocked and the name "hakmem". The child
 * of a fork has none, and it ends with the main thread. Without memory for a thread nothing happens: the
 * program's own operations do its work, as they do after it.
 */
HAK_COLD void hak_background_start(void);

#endif
