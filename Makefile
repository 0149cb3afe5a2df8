# hakmem: how it is built, installed, checked and tested. `make help` lists the targets.
#
# Sources are core/FLOOR/*.c, whatever stands there. A *flavour* is one set of compiler flags with objects of
# its own under build/FLAVOUR/; each object depends on its source, on the headers it includes (.d files) and on
# build/FLAVOUR/flags, which changes whenever the compiler or a flag does.
#
# Options, on the command line: NATIVE=1 (-march=native), HAKMEM_DEBUG_COUNTERS=1 (per-hit counters in a release
# build), CC=clang, LTO=0 or 1, V=1 (show commands), CFLAGS= CPPFLAGS= LDFLAGS= (added to hakmem's own), and for
# installing PREFIX= LIBDIR= INCLUDEDIR= DESTDIR=. `make install` wants the options that `make` was given, or it builds
# anew. `make -n` and `make -q` take everything for out of date: only a recipe looks whether flags have changed.

# Bottom-up: a file may include files of its own floor and of those to the left. tests/checks/layers.py reads this.
FLOORS := base os conf meta slab large check heap process api

ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin CXX),default)
CXX := g++
endif
# The compiler's own, so that CC and CXX are all that a build for another machine needs. $(call tool_of_cc,NAME,PROGRAM)
tool_of_cc = $(if $(filter default undefined,$(origin $1)),$(eval $1 := $(or $(shell $(CC) -print-prog-name=$2),$2)))
$(call tool_of_cc,AR,ar)$(call tool_of_cc,LD,ld)$(call tool_of_cc,OBJCOPY,objcopy)
PREFIX                ?= /usr/local
LIBDIR                ?= $(PREFIX)/lib
INCLUDEDIR            ?= $(PREFIX)/include
NATIVE                ?= 0
HAKMEM_DEBUG_COUNTERS ?= 0
V                     ?= 0

MAKEFLAGS += --no-builtin-rules
# Without -j: as many jobs as there are processors.
ifeq ($(filter -j%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc)
endif
.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := all

Q   := $(if $(filter 1,$(V)),,@)
say  = $(if $(filter 1,$(V)),,@printf '  %-8s %s\n' $1 $2)

version_part = $(shell awk '/define HAK_VERSION_$1 / { print $$3 }' include/hakmem.h)
MAJOR       := $(call version_part,MAJOR)
VERSION     := $(MAJOR).$(call version_part,MINOR).$(call version_part,PATCH)
SONAME      := libhakmem.so.$(MAJOR)

# ---- sources ------------------------------------------------------------------------------------------------

SOURCES := $(sort $(foreach floor,$(FLOORS),$(wildcard core/$(floor)/*.c)))
# Only a preloaded library may stand in front of libc's dlopen; a program that links the archive asks libc itself.
SHARED_ONLY := core/api/dlopen.c
STATIC_SOURCES := $(filter-out $(SHARED_ONLY),$(SOURCES))

# ---- flags --------------------------------------------------------------------------------------------------

IS_CLANG := $(findstring clang,$(shell $(CC) --version 2>/dev/null))
# clang's LTO needs a linker plugin that its package does not bring along, gcc's always works.
LTO ?= $(if $(IS_CLANG),0,1)

# Warnings are errors for who tests, not for who builds with a compiler that knows of more of them.
WERROR ?= $(if $(filter test test-all check coverage fuzz bench-test,$(MAKECMDGOALS)),-Werror)
WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition \
            -Wpointer-arith -Wvla -Wundef -Wwrite-strings -Wformat=2
# -ftls-model: no call to find thread-local data. -fexceptions: operator new throws through C frames.
CORE_FLAGS := -std=gnu17 -Icore -Iinclude $(WARNINGS) -pthread -fPIC -fvisibility=hidden \
              -ftls-model=initial-exec -fexceptions -fno-plt -fno-semantic-interposition \
              $(if $(filter 1,$(NATIVE)),-march=native)
RELEASE_FLAGS := $(CORE_FLAGS) -O3 -g -DNDEBUG -DHAKMEM_BUILD_RELEASE=1 \
                 $(if $(filter 1,$(HAKMEM_DEBUG_COUNTERS)),-DHAKMEM_DEBUG_COUNTERS=1)
DEBUG_FLAGS := $(CORE_FLAGS) -O1 -g -fno-omit-frame-pointer -DHAKMEM_BUILD_RELEASE=0
# -O3 is for what a hit, a refill or a spill passes through. For the rest it would buy nothing and cost code, which every
# process that preloads hakmem has in memory. (-Os for some of it saved 4 KiB more and cost random_mixed time.)
HOT_SOURCES := $(addprefix core/,slab/blocks.c slab/slab.c slab/slab_list.c slab/tally.c heap/front.c heap/homeward.c heap/supply.c \
                 heap/unified_cache.c api/malloc.c api/cxx.c api/hakmem.c)
COOL_FLAGS_release := -O2
COOL_FLAGS_archive := -O2
# What checked mode alone runs, with frame pointers, so that its stacks can be walked; and what answers when a program
# asks about its heap, or serves an option alone. In the shared library it lies apart, with what is rarely run
# (core/layout.ld): no other process should hold these pages.
FAR_SOURCES := $(wildcard core/check/*.c) $(addprefix core/,heap/checked.c heap/checked_walk.c heap/sampled.c heap/defrag.c \
                 process/verify.c process/walk.c process/stats.c process/front_table.c large/extent_check.c \
                 slab/superslab_check.c process/background.c slab/chance.c base/chacha.c)
FAR_FLAGS := -Os -fno-omit-frame-pointer
FAR_FLAGS_release := -fno-lto $(if $(IS_CLANG),,-fno-reorder-functions)
# The entry points are malloc and calloc themselves: the compiler must not turn their bodies into calls to these.
API_FLAGS := -fno-builtin
SO_LAYOUT := core/layout.ld
# initfirst: its constructor comes before those of other libraries, so its fork handler after theirs (process/fork.c).
SO_LINK_FLAGS := -shared -Wl,-T,$(SO_LAYOUT) -Wl,-soname,$(SONAME) \
                 -Wl,-z,now,-z,relro,-z,defs,-z,nodelete,-z,noexecstack,-z,initfirst

ifeq ($(LTO),1)
RELEASE_LTO := $(if $(IS_CLANG),-flto,-flto=auto)
# clang has no fat objects, and bitcode alone would bind the archive's users to clang.
ARCHIVE_LTO := $(if $(IS_CLANG),,-flto=auto -ffat-lto-objects)
endif

# One row per flavour: its compiler and its flags. `release` makes libhakmem.so, `archive` libhakmem.a.
CC_release := $(CC)
FLAGS_release := $(RELEASE_FLAGS) $(RELEASE_LTO)
CC_archive := $(CC)
FLAGS_archive := $(RELEASE_FLAGS) $(ARCHIVE_LTO)
CC_debug := $(CC)
FLAGS_debug := $(DEBUG_FLAGS)
CC_tsan := $(CC)
FLAGS_tsan := $(DEBUG_FLAGS) -fsanitize=thread
CC_ubsan := $(CC)
FLAGS_ubsan := $(DEBUG_FLAGS) -fsanitize=undefined -fno-sanitize-recover=all
# For stress alone: threads give way by chance at atomic accesses (tests/yields/base/atomic.h).
CC_yields := $(CC)
FLAGS_yields := -Itests/yields $(DEBUG_FLAGS)
CC_aarch64 := aarch64-linux-gnu-gcc
FLAGS_aarch64 := $(filter-out -march=native,$(RELEASE_FLAGS)) -flto=auto
CC_musl := musl-gcc
# musl declares fewer of the names that glibc programs use.
FLAGS_musl := $(RELEASE_FLAGS) -Wno-missing-prototypes -flto=auto -isystem build/musl/kernel
FLAVOURS := release archive debug tsan ubsan yields aarch64 musl

# ---- building -----------------------------------------------------------------------------------------------

.PHONY: all debug tsan ubsan aarch64 musl
all: libhakmem.so libhakmem.a ## ./libhakmem.so and ./libhakmem.a, the release flavour
debug: libhakmem-debug.so build/debug/libhakmem.a ## ./libhakmem-debug.so, every assertion and exact counters
tsan: build/tsan/libhakmem.a ## build/tsan/libhakmem.a for ThreadSanitizer programs, hak_* names alone
ubsan: build/ubsan/libhakmem.a ## build/ubsan/libhakmem.a with UndefinedBehaviorSanitizer
aarch64: build/aarch64/libhakmem.so ## build/aarch64/libhakmem.so, cross-compiled
musl: build/musl/libhakmem.so ## build/musl/libhakmem.so for programs on musl

# $(call remember,TEXT) is a recipe that writes TEXT to the target only if it does not stand there yet.
remember = @mkdir -p $(@D); printf '%s\n' '$1' | cmp -s - $@ || printf '%s\n' '$1' > $@

# $(call rules_of,FLAVOUR): objects of the flavour and the two files that say when they are out of date.
define rules_of
compile_$1 = $$(CC_$1) $$(FLAGS_$1) $$(CPPFLAGS) $$(CFLAGS)
objects_$1 = $$(SOURCES:core/%.c=build/$1/%.o)
static_objects_$1 = $$(STATIC_SOURCES:core/%.c=build/$1/%.o)

build/$1/%.o: core/%.c build/$1/flags
	@mkdir -p $$(@D)
	$$(call say,CC,$$@)
	$$(Q)$$(compile_$1) $$(WERROR) $$(if $$(filter $$(HOT_SOURCES),$$<),,$$(COOL_FLAGS_$1)) \
	    $$(if $$(filter core/api/%,$$<),$$(API_FLAGS)) \
	    $$(if $$(filter $$(FAR_SOURCES),$$<),$$(FAR_FLAGS) $$(FAR_FLAGS_$1)) -MMD -MP -c $$< -o $$@
	$$(if $$(FAR_FLAGS_$1),$$(if $$(filter $$(FAR_SOURCES),$$<),$$(Q)$$(OBJCOPY) --rename-section .text=hak_far $$@))

build/$1/flags: FORCE
	$$(call remember,$$(shell $$(CC_$1) --version 2>/dev/null | sed -n 1p) $$(compile_$1) $$(COOL_FLAGS_$1) $$(API_FLAGS) \
	    $$(FAR_FLAGS) $$(FAR_FLAGS_$1))

# Relinks when a source goes, which no timestamp shows, and when only LDFLAGS change.
build/$1/link: FORCE
	$$(call remember,$$(SO_LINK_FLAGS) $$(LDFLAGS) $$(objects_$1))

-include $$(wildcard build/$1/*/*.d)
endef
$(foreach flavour,$(FLAVOURS),$(eval $(call rules_of,$(flavour))))

.PHONY: FORCE
FORCE:

# $(call link_so,FLAVOUR). Programs that are linked with it look for it by its soname.
define link_so
$(call say,LD,$@)
$(Q)$(compile_$1) $(WERROR) $(objects_$1) $(SO_LINK_FLAGS) $(LDFLAGS) -o $@
$(Q)ln -sf $(if $(filter build/%,$@),$(@F),../../$@) build/$1/$(SONAME)
endef

# One object in the archive: a program gets all of hakmem or nothing, never its malloc with libc's realloc.
# The linker without its plugin joins objects as they are, code and LTO sections; gcc 12 fails at merging the latter.
# $(call merge,FLAVOUR)
define merge
$(call say,AR,$@)
$(Q)$(LD) -r $(static_objects_$1) -o $(@:.a=.o)
$(Q)rm -f $@ && $(AR) rcs $@ $(@:.a=.o)
endef

libhakmem.so: $(objects_release) $(SO_LAYOUT) build/release/link build/release/flags
	$(call link_so,release)

libhakmem-debug.so: $(objects_debug) $(SO_LAYOUT) build/debug/link build/debug/flags
	$(call link_so,debug)

build/aarch64/libhakmem.so: $(objects_aarch64) $(SO_LAYOUT) build/aarch64/link build/aarch64/flags
	$(call link_so,aarch64)

build/musl/libhakmem.so: $(objects_musl) $(SO_LAYOUT) build/musl/link build/musl/flags
	$(call link_so,musl)

build/archive/libhakmem.a: $(static_objects_archive) build/archive/link build/archive/flags
	$(call merge,archive)

libhakmem.a: build/archive/libhakmem.a
	$(Q)cp $< $@

$(foreach flavour,debug tsan ubsan yields,build/$(flavour)/libhakmem.a): build/%/libhakmem.a: build/%/link build/%/flags
	$(call merge,$*)
build/debug/libhakmem.a: $(static_objects_debug)
build/tsan/libhakmem.a: $(static_objects_tsan)
build/ubsan/libhakmem.a: $(static_objects_ubsan)
build/yields/libhakmem.a: $(static_objects_yields)

# musl-gcc hides the kernel's headers together with glibc's.
$(objects_musl): build/musl/kernel/linux
build/musl/kernel/linux:
	@mkdir -p $(@D)
	$(Q)for dir in linux asm-generic asm; do \
	    for from in /usr/include /usr/include/$(shell $(CC) -dumpmachine); do \
	        if [ -d $$from/$$dir ]; then ln -sfn $$from/$$dir $(@D)/$$dir; fi; done; done

# ---- a first look -------------------------------------------------------------------------------------------

.PHONY: demo
demo: libhakmem.so ## builds hakmem and runs a real program on it and on libc, time and memory beside each other
	$(Q)bench/demo/run

# ---- installing ---------------------------------------------------------------------------------------------

LIB     = '$(DESTDIR)$(LIBDIR)'
INCLUDE = '$(DESTDIR)$(INCLUDEDIR)'

.PHONY: install uninstall
install: all ## the library, the header and hakmem.pc below PREFIX (/usr/local)
	install -d $(LIB)/pkgconfig $(INCLUDE)
	install -m 755 libhakmem.so $(LIB)/libhakmem.so.$(VERSION)
	ln -sf libhakmem.so.$(VERSION) $(LIB)/$(SONAME)
	ln -sf $(SONAME) $(LIB)/libhakmem.so
	install -m 644 libhakmem.a $(LIB)/libhakmem.a
	install -m 644 include/hakmem.h $(INCLUDE)/hakmem.h
	printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(LIBDIR)' 'includedir=$(INCLUDEDIR)' '' 'Name: hakmem' \
	    'Description: A memory allocator in place of malloc' 'Version: $(VERSION)' \
	    'Libs: -L$${libdir} -lhakmem' 'Libs.private: -pthread' 'Cflags: -I$${includedir}' > $(LIB)/pkgconfig/hakmem.pc

uninstall: ## removes what install put there
	rm -f $(LIB)/libhakmem.so.$(VERSION) $(LIB)/$(SONAME) $(LIB)/libhakmem.so $(LIB)/libhakmem.a \
	    $(INCLUDE)/hakmem.h $(LIB)/pkgconfig/hakmem.pc

# ---- tests: the convention is in tests/README.md ------------------------------------------------------------

# Tests misuse blocks and ask for impossible sizes on purpose; -fno-builtin keeps every malloc in the program.
TEST_WARNINGS := -Wall -Wextra -Werror -Wno-unknown-warning-option -Wno-use-after-free -Wno-free-nonheap-object \
                 -Wno-mismatched-dealloc -Wno-alloc-size-larger-than -Wno-deprecated-declarations
TEST_FLAGS := -g -O1 -fno-builtin -pthread -Icore -Iinclude -Itests $(TEST_WARNINGS)
TEST_LIBS := -lcmocka -lm -ldl

# Flavours of test binaries. `plain` ones know nothing of hakmem and run under LD_PRELOAD, the others are linked
# with the archive of their flavour.
TEST_FLAGS_plain := -DHAKMEM_BUILD_RELEASE=1
TEST_FLAGS_release := -DHAKMEM_BUILD_RELEASE=1 -DTEST_HAK_NAMES
TEST_FLAGS_debug := -DHAKMEM_BUILD_RELEASE=0 -DTEST_HAK_NAMES
TEST_FLAGS_tsan := $(TEST_FLAGS_debug) -fsanitize=thread
TEST_FLAGS_ubsan := $(TEST_FLAGS_debug) -fsanitize=undefined -fno-sanitize-recover=all
TEST_FLAGS_yields := $(TEST_FLAGS_debug)
TEST_ARCHIVE_release := libhakmem.a
$(foreach flavour,debug tsan ubsan yields,$(eval TEST_ARCHIVE_$(flavour) := build/$(flavour)/libhakmem.a))

TEST_FOLDERS := $(filter-out support plugins fuzz model mutation yields,$(patsubst tests/%/,%,$(wildcard tests/*/)))
PRELOADED_FOLDERS := $(filter-out unit,$(TEST_FOLDERS))
suites_in = $(basename $(wildcard tests/$1/*_test.c tests/$1/*_test.cc))
# $(call binaries,FLAVOUR,FOLDERS)
binaries = $(foreach folder,$2,$(patsubst tests/%,build/tests/$1/%,$(call suites_in,$(folder))))
TEST_BINARIES := $(call binaries,plain,$(PRELOADED_FOLDERS)) \
                 $(foreach flavour,release debug,$(call binaries,$(flavour),unit)) \
                 $(foreach flavour,tsan ubsan yields,$(call binaries,$(flavour),stress))
sources_in = $(wildcard tests/$1/*.c tests/$1/*.cc)
TEST_PROGRAMS := $(foreach folder,$(PRELOADED_FOLDERS),$(patsubst tests/%,build/tests/plain/%,\
    $(basename $(filter-out %_test.c %_test.cc,$(call sources_in,$(folder))))))
TEST_PLUGINS := $(patsubst tests/%,build/tests/plain/%.so,$(basename $(call sources_in,plugins)))

# $(call test_rules_of,FLAVOUR,SUITES). -fno-lto: the archive's machine code as it is, not generated per test.
define test_rules_of
support_$1 := $(patsubst tests/%.c,build/tests/$1/%.o,$(wildcard tests/support/*.c))
test_compile_$1 = $$(TEST_FLAGS) $$(TEST_FLAGS_$1)
build/tests/$1/flags: FORCE
	$$(call remember,$$(CC) $$(CXX) $$(test_compile_$1) $$(support_$1) $$(TEST_LIBS))
build/tests/$1/%.o: tests/%.c build/tests/$1/flags | cmocka
	@mkdir -p $$(@D)
	$$(call say,CC,$$@)
	$$(Q)$$(CC) -std=gnu17 $$(test_compile_$1) -MMD -MP -c $$< -o $$@
build/tests/$1/%.o: tests/%.cc build/tests/$1/flags | cmocka
	@mkdir -p $$(@D)
	$$(call say,CXX,$$@)
	$$(Q)$$(CXX) -std=gnu++17 -fsized-deallocation $$(test_compile_$1) -MMD -MP -c $$< -o $$@
$2: build/tests/$1/%: build/tests/$1/%.o $$(support_$1) $$(TEST_ARCHIVE_$1) build/tests/$1/flags
	$$(call say,LD,$$@)
	$$(Q)$$(if $$(wildcard tests/$$*.cc),$$(CXX),$$(CC)) -pthread -fno-lto $$(filter -fsanitize%,$$(TEST_FLAGS_$1)) \
	    $$< $$(support_$1) $$(TEST_ARCHIVE_$1) $$(TEST_LIBS) $$(if $$(TEST_ARCHIVE_$1),$$(LDFLAGS)) -o $$@
-include $$(wildcard build/tests/$1/*/*.d)
endef
$(foreach flavour,plain release debug tsan ubsan yields,$(eval \
    $(call test_rules_of,$(flavour),$(filter build/tests/$(flavour)/%,$(TEST_BINARIES)))))

# $(call plain_program,COMPILER,FLAGS)
define plain_program
@mkdir -p $(@D)
$(call say,CC,$@)
$(Q)$1 $(test_compile_plain) -MMD -MP -MT $@ $2 $< -o $@ -lm -ldl
endef
build/tests/plain/%.so: tests/%.c build/tests/plain/flags
	$(call plain_program,$(CC) -std=gnu17,-fPIC -shared)
build/tests/plain/%.so: tests/%.cc build/tests/plain/flags
	$(call plain_program,$(CXX) -std=gnu++17 -fsized-deallocation,-fPIC -shared)
$(filter $(patsubst tests/%.c,build/tests/plain/%,$(wildcard tests/*/*.c)),$(TEST_PROGRAMS)): \
    build/tests/plain/%: tests/%.c build/tests/plain/flags
	$(call plain_program,$(CC) -std=gnu17)
$(filter $(patsubst tests/%.cc,build/tests/plain/%,$(wildcard tests/*/*.cc)),$(TEST_PROGRAMS)): \
    build/tests/plain/%: tests/%.cc build/tests/plain/flags
	$(call plain_program,$(CXX) -std=gnu++17 -fsized-deallocation)

.SECONDARY:
.PHONY: cmocka test-programs test test-all coverage check misuse-table format
cmocka:
	@printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n#include <cmocka.h>\n' \
	    | $(CC) -E -x c - >/dev/null 2>&1 || { as_root=; [ "$$(id -u)" = 0 ] || as_root=sudo; \
	    $$as_root apt-get update -q && \
	    $$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy libcmocka-dev pkg-config; }

-include tests/fuzz/fuzz.mk
-include tests/model/model.mk

test-programs: all debug model $(TEST_BINARIES) $(TEST_PROGRAMS) $(TEST_PLUGINS) $(FUZZ_REPLAYS)

test: test-programs ## builds and runs the quick tests; SUITES="unit api/errno" picks some
	$(Q)CC='$(CC)' CXX='$(CXX)' tests/run $(SUITES)

test-all: test-programs ## builds and runs every test, the slow ones too
	$(Q)CC='$(CC)' CXX='$(CXX)' tests/run --all $(SUITES)

coverage: ## runs the tests with clang's coverage of core/ and writes tests/COVERAGE.md
	$(Q)tests/coverage $(SUITES)

check: all debug ## the checks of source and libraries alone
	$(Q)tests/run checks

misuse-table: libhakmem.so $(TEST_PROGRAMS) ## what hakmem, libc and the installed peers do about each heap fault
	$(Q)tests/misuse/table

C_FILES = $(wildcard core/*/*.[ch] include/*.h tests/*/*.[ch] tests/*/*/*.[ch] tests/*/*.cc bench/*/*.[ch] bench/*/*.cc)
format: ## clang-format over every C file, in place
	clang-format -i $(C_FILES)

# ---- the rest -----------------------------------------------------------------------------------------------

-include bench/bench.mk

.PHONY: clean help
clean: ## removes everything that was built
	rm -rf build libhakmem.so libhakmem.a libhakmem-debug.so

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9_-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' \
	    $(wildcard Makefile bench/bench.mk tests/fuzz/fuzz.mk tests/model/model.mk)
