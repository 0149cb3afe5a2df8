# The fuzzing targets: included by the top-level Makefile, whose rules build the archives that are fuzzed.
#
# Gives: fuzz (needs clang; FUZZ_SECONDS for each target and flavour, or FUZZ_RUNS inputs; FUZZ_TARGETS, FUZZ_FLAVOURS, FUZZ_MODES),
# fuzz-corpus (minimises what fuzz found into tests/fuzz/corpus), fuzz-programs, and the programs that replay the corpus
# in the test run, which need no clang.

FUZZ_BUILD    := build/fuzz
FUZZ_TARGETS  ?= operations options pointers
FUZZ_FLAVOURS ?= release debug
FUZZ_SECONDS  ?= 60
FUZZ_RUNS     ?= -1
FUZZ_MODES    ?= ordinary checked sampled
FUZZ_JOB      := FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_RUNS=$(FUZZ_RUNS) FUZZ_MODES='$(FUZZ_MODES)'

FUZZ_SOURCES_operations := operations sizes shadow waiting workers requests books kernel
FUZZ_SOURCES_options    := options kernel
FUZZ_SOURCES_pointers   := pointers pointers_child sizes shadow waiting workers requests books kernel

# The debug flavour is looked at by sanitizers too. Comparisons inside of hakmem are not traced: the inputs need no
# guessing, and the search for the nearest option would be nothing but that.
FUZZ_CLANG        := clang
FUZZ_UNTRACED     := -fno-sanitize-coverage=trace-cmp
FUZZ_LOOK_release := -fsanitize=fuzzer-no-link
FUZZ_LOOK_debug   := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
FUZZ_ARCHIVE_release := build/fuzzed-release/libhakmem.o
FUZZ_ARCHIVE_debug   := build/fuzzed-debug/libhakmem.o
FUZZ_REPLAYED_release := build/archive/libhakmem.o
FUZZ_REPLAYED_debug   := build/debug/libhakmem.o

CC_fuzzed-release := $(FUZZ_CLANG)
FLAGS_fuzzed-release := $(RELEASE_FLAGS) $(FUZZ_LOOK_release) $(FUZZ_UNTRACED)
CC_fuzzed-debug := $(FUZZ_CLANG)
FLAGS_fuzzed-debug := $(DEBUG_FLAGS) $(FUZZ_LOOK_debug) $(FUZZ_UNTRACED)
$(foreach flavour,fuzzed-release fuzzed-debug,$(eval $(call rules_of,$(flavour))))

FUZZ_KERNEL_CALLS := mmap munmap mremap mprotect madvise clock_gettime syscall

# hakmem as a guest of a program that has a malloc already: the C library's names get own_ before them, and the system
# calls go to kernel.c. $(call fuzz_guest,OBJECT)
define fuzz_guest
@mkdir -p $(@D)
$(call say,OBJCOPY,$@)
$(Q){ nm -g --defined-only $1 | awk '$$3 !~ /^(hak_|__llvm_|__covrec_)|[.]/ { print $$3, "own_" $$3 }'; \
    for call in $(FUZZ_KERNEL_CALLS); do echo "$$call kernel_$$call"; done; } > $@.names
$(Q)$(OBJCOPY) --remove-section='.gnu.lto*' --redefine-syms=$@.names $1 $@
endef

fuzz_flags = -std=gnu17 -D_GNU_SOURCE $(filter-out -O1,$(TEST_FLAGS)) -O2 -DHAKMEM_BUILD_RELEASE=$(if $(filter release,$1),1,0)
fuzz_sources = $(patsubst %,tests/fuzz/%.c,$(FUZZ_SOURCES_$1))
FUZZ_HEADERS := $(wildcard tests/fuzz/*.h)

# $(call fuzz_rules_of,FLAVOUR)
define fuzz_rules_of
build/fuzzed-$1/libhakmem.o: $$(static_objects_fuzzed-$1) build/fuzzed-$1/link build/fuzzed-$1/flags
	$$(Q)$$(LD) -r $$(static_objects_fuzzed-$1) -o $$@
$$(FUZZ_BUILD)/$1/guest-fuzzed.o: $$(FUZZ_ARCHIVE_$1) tests/fuzz/fuzz.mk
	$$(call fuzz_guest,$$<)
$$(FUZZ_BUILD)/$1/guest.o: $$(FUZZ_REPLAYED_$1:.o=.a) tests/fuzz/fuzz.mk
	$$(call fuzz_guest,$$(FUZZ_REPLAYED_$1))

$$(FUZZ_BUILD)/$1/fuzz-%: $$(FUZZ_BUILD)/$1/guest-fuzzed.o tests/fuzz/libfuzzer.c tests/fuzz/mutate.c tests/fuzz/*.[ch]
	$$(call say,FUZZ,$$@)
	$$(Q)$$(FUZZ_CLANG) $$(call fuzz_flags,$1) $$(subst fuzzer-no-link,fuzzer,$$(FUZZ_LOOK_$1)) \
	    $$(call fuzz_sources,$$*) $$(if $$(filter operations,$$*),tests/fuzz/mutate.c) tests/fuzz/libfuzzer.c $$< -o $$@
$$(FUZZ_BUILD)/$1/replay-%: $$(FUZZ_BUILD)/$1/guest.o tests/fuzz/*.[ch]
	$$(call say,LD,$$@)
	$$(Q)$$(CC) -fno-lto $$(call fuzz_flags,$1) $$(call fuzz_sources,$$*) tests/fuzz/replay.c $$< $$(LDFLAGS) -o $$@
endef
$(foreach flavour,release debug,$(eval $(call fuzz_rules_of,$(flavour))))

FUZZ_PROGRAMS := $(foreach flavour,$(FUZZ_FLAVOURS),$(FUZZ_TARGETS:%=$(FUZZ_BUILD)/$(flavour)/fuzz-%))
FUZZ_REPLAYS  := $(foreach flavour,release debug,$(patsubst %,$(FUZZ_BUILD)/$(flavour)/replay-%,operations options pointers))

.PHONY: fuzz fuzz-corpus fuzz-programs
fuzz-programs: $(FUZZ_PROGRAMS)

fuzz: fuzz-programs ## fuzzes with clang: FUZZ_SECONDS=60 or FUZZ_RUNS=N each, FUZZ_TARGETS= FUZZ_FLAVOURS= FUZZ_MODES=
	$(Q)$(FUZZ_JOB) tests/fuzz/fuzz $(FUZZ_PROGRAMS)

fuzz-corpus: fuzz-programs ## minimises the inputs that make fuzz found into tests/fuzz/corpus
	$(Q)tests/fuzz/corpus.py pack $(FUZZ_BUILD) $(FUZZ_TARGETS)
