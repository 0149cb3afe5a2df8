/*
 * classes.h - the number of a size class by its blocks' size, for tests: CLASS_OF_64 and so on.
 */
#ifndef HAK_TESTS_SUPPORT_CLASSES_H
#define HAK_TESTS_SUPPORT_CLASSES_H

#include "meta/classes.h"

#define NUMBER_OF_SIZE(idx, below, bytes, units) CLASS_OF_##bytes = (idx),
enum class_of_size { HAK_CLASS_TABLE(NUMBER_OF_SIZE) };

#endif
