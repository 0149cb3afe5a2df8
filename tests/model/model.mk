# The library's own C under a checker of interleavings, see README.md here; and what changes it mechanically.

# The shipped files, but for those that talk to the kernel; the lock stands beside the checker's under other names.
MODEL_CORE := core/base/text.c core/base/chacha.c core/os/fatal.c core/os/line.c core/os/lock.c \
              core/process/verify.c core/process/walk.c \
              $(foreach floor,conf meta slab large check heap,$(filter core/$(floor)/%,$(SOURCES)))
# -fsanitize=thread for its calls at each plain access alone: the functions called are the checker's.
MODEL_FLAGS := -std=gnu17 -g -O1 -fPIC -pthread -fno-builtin -ftls-model=initial-exec \
               -DHAKMEM_DEBUG_COUNTERS=0 -Itests/model/shadow -Itests/model -Itests -Icore -Iinclude \
               -U__SSE2__ -U__SANITIZE_THREAD__ -DTRACE_BUCKETS=4u -Dmemcpy=model_memcpy -Dmemmove=model_memmove -Dmemset=model_memset -Dabort=model_abort -Wall -Wextra -Werror
MODEL_TRACED := -fsanitize=thread
# Of the fast paths both halves, as a scenario says; the rest is the debug flavour.
MODEL_HALVES := -DHAKMEM_BUILD_RELEASE=model_is_release -include model/model.h
MODEL_DEBUG := -DHAKMEM_BUILD_RELEASE=0
model_flavour = $(if $(or $(findstring core/heap/,$1),$(findstring /scenarios/,$1)),$(MODEL_HALVES),$(MODEL_DEBUG))
MODEL_LOCK := -DSPINS_MAX=1u $(foreach name,acquire release fork_take fork_give fork_reset fork_begin fork_end,\
                -Dhak_lock_$(name)=shipped_lock_$(name))
MODEL_CHECKER_FLAGS := -std=gnu17 -g -O2 -U_FORTIFY_SOURCE -Itests -Wall -Wextra -Werror
model_objects = $(patsubst %.c,build/model/%.o,$1)
MODEL_LIBRARY := $(call model_objects,$(MODEL_CORE) $(wildcard tests/model/floor/*.c tests/model/scenarios/*.c))
MODEL_CHECKER := $(call model_objects,$(wildcard tests/model/*.c))

build/model/flags: FORCE
	$(call remember,$(CC) $(MODEL_FLAGS) $(MODEL_HALVES) $(MODEL_TRACED) $(MODEL_LOCK) $(MODEL_CHECKER_FLAGS) $(MODEL_LIBRARY) $(MODEL_CHECKER))
$(MODEL_LIBRARY): build/model/%.o: %.c build/model/flags
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(MODEL_FLAGS) $(call model_flavour,$<) $(if $(findstring /floor/,$<),,$(MODEL_TRACED)) $(if $(filter core/os/lock.c,$<),$(MODEL_LOCK)) \
	    -MMD -MP -c $< -o $@
$(MODEL_CHECKER): build/model/%.o: %.c build/model/flags
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(MODEL_CHECKER_FLAGS) -MMD -MP -c $< -o $@
build/model/libmodelled.so: $(MODEL_LIBRARY)
	$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,-z,now $(MODEL_LIBRARY) -o $@
build/model/modelcheck: $(MODEL_CHECKER) build/model/libmodelled.so
	$(call say,LD,$@)
	$(Q)$(CC) -rdynamic $(MODEL_CHECKER) build/model/libmodelled.so -Wl,-rpath,'$$ORIGIN' -ldl -o $@
-include $(wildcard build/model/*/*/*.d build/model/*/*/*/*.d)

.PHONY: model model-weaken mutation
model: build/model/modelcheck ## build/model/modelcheck, the checker of interleavings: `build/model/modelcheck --help`
model-weaken: model ## each acquire and release of core/ weakened in turn: which scenario fails; writes WEAKENED.md
	$(Q)tests/model/weaken.py
MUTATION_OPTIONS := $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT))
mutation: cmocka ## changes core/ in SEED= COUNT= places, one at a time, and sees which test notices; writes REPORT.md
	$(Q)tests/mutation/mutate.py $(MUTATION_OPTIONS)
