/*
 * sites.c - the section in which shadow/base/atomic.h lists every use of a wrapper.
 */
#include "model/model.h"

extern const struct model_site *const __start_model_sites[];
extern const struct model_site *const __stop_model_sites[];

const struct model_site *const *model_site_list(size_t *count);
const struct model_site *const *model_site_list(size_t *count) {
    *count = (size_t)(__stop_model_sites - __start_model_sites);
    return __start_model_sites;
}
