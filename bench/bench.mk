# The benchmarks: included by the top-level Makefile.
#
# Needs from there: CC, the targets libhakmem.so, libhakmem.a and debug (libhakmem-debug.so); uses Q and say where
# they are defined.
# Gives: bench, bench-quick, bench-full, bench-real, bench-scale, bench-medley, bench-instr (timings and counts),
# bench-deps (Debian packages of the other allocators and valgrind), bench-deps-real, bench-programs,
# bench_<program>_hakmem, bench-test, bench-clean.

BENCH_BUILD    := build/bench
BENCH_PYTHON   ?= python3
BENCH_PROGRAMS := $(basename $(notdir $(wildcard bench/programs/*.c)))
BENCH_HEADERS  := $(wildcard bench/lib/*.h)
BENCH_OBJECTS  := $(patsubst bench/lib/%.c,$(BENCH_BUILD)/lib/%.o,$(wildcard bench/lib/*.c))
BENCH_LINKED   := $(BENCH_PROGRAMS:%=bench_%_hakmem)

# No builtin malloc: the compiler may otherwise remove a malloc whose block is freed again unused. The debug
# format is one that valgrind 3.19 reads from every compiler.
BENCH_CFLAGS := -std=c17 -D_GNU_SOURCE -O2 -gdwarf-4 -Wall -Wextra -Wshadow $(WERROR) -fno-builtin-malloc \
                -fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free

BENCH_DEBIAN_PACKAGES := libjemalloc2 libmimalloc2.0 libtcmalloc-minimal4 valgrind
BENCH_REAL_PACKAGES := gcc g++ python3 perl lua5.4 nodejs jq sqlite3 redis-server redis-tools ghostscript z3 git
# Written by bench/instr --save; while it exists, bench-instr fails on a count that grew.
BENCH_INSTR_SAVED := bench/instr-baseline.json
BENCH_RUN := CC="$(CC)" $(BENCH_PYTHON)

.PHONY: bench bench-quick bench-full bench-real bench-scale bench-medley bench-instr bench-memory bench-deps \
        bench-deps-real bench-programs bench-test bench-clean $(BENCH_LINKED)

bench: bench-programs libhakmem.so ## compares the allocators on all programs (10 to 13 minutes)
	$(BENCH_RUN) bench/compare --set bench

bench-quick: bench-programs libhakmem.so ## the same in 90 seconds, fewer rows
	$(BENCH_RUN) bench/compare --set quick

bench-full: bench-programs libhakmem.so debug ## the same with long runs and the debug flavour
	$(BENCH_RUN) bench/compare --set full

bench-real: bench-programs libhakmem.so ## programs that people run: compilers, interpreters, databases
	$(BENCH_RUN) bench/compare --set real

bench-scale: bench-programs libhakmem.so ## speed over 1..N threads
	$(BENCH_RUN) bench/compare --set scale

bench-medley: bench-programs libhakmem.so ## 60 workloads that a seed draws, each a row
	$(BENCH_RUN) bench/compare --set medley

bench-instr: bench-programs libhakmem.so ## instructions of malloc and free, counted by callgrind
	$(BENCH_RUN) bench/instr $(if $(wildcard $(BENCH_INSTR_SAVED)),--check $(BENCH_INSTR_SAVED))

bench-memory: bench-programs $(BENCH_BUILD)/waste.so libhakmem.so ## where the memory is: the table of bench/MEMORY.md
	$(BENCH_RUN) bench/memory

bench-deps: ## installs the other allocators and valgrind (Debian)
	$(if $(filter 0,$(shell id -u)),,sudo) apt-get install -y $(BENCH_DEBIAN_PACKAGES)

bench-deps-real: ## installs what bench-real runs (Debian)
	$(if $(filter 0,$(shell id -u)),,sudo) apt-get install -y $(BENCH_REAL_PACKAGES)

bench-programs: $(BENCH_PROGRAMS:%=$(BENCH_BUILD)/%) $(BENCH_BUILD)/launch $(BENCH_BUILD)/witness.so

bench-test: bench-programs libhakmem.so $(BENCH_BUILD)/histogram_test ## tests of the benchmarks and their runner
	$(BENCH_RUN) bench/tests/run

bench-clean: ## removes what the benchmarks built and wrote
	rm -rf $(BENCH_BUILD) bench/out

# Each program linked to hakmem, for a profiler or a debugger: no preload needed. Without link-time optimisation:
# the archive's plain objects are what most users link.
$(BENCH_LINKED): bench_%_hakmem: $(BENCH_BUILD)/bench_%_hakmem

$(BENCH_BUILD)/bench_%_hakmem: $(BENCH_BUILD)/programs/%.o $(BENCH_OBJECTS) libhakmem.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(BENCH_CFLAGS) -fno-lto -o $@ $(filter %.o,$^) libhakmem.a $(LDFLAGS) -pthread -ldl

$(BENCH_PROGRAMS:%=$(BENCH_BUILD)/%): $(BENCH_BUILD)/%: $(BENCH_BUILD)/programs/%.o $(BENCH_OBJECTS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(BENCH_CFLAGS) $(BENCH_EXPORTS) -o $@ $^ $(LDFLAGS) -pthread -ldl

# Its clock is the preloaded library's too.
$(BENCH_BUILD)/instr: BENCH_EXPORTS := -rdynamic

$(BENCH_BUILD)/programs/%.o: bench/programs/%.c $(BENCH_HEADERS) bench/bench.mk
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(BENCH_CFLAGS) -c -o $@ $<

$(BENCH_BUILD)/lib/%.o: bench/lib/%.c $(BENCH_HEADERS) bench/bench.mk
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(BENCH_CFLAGS) -c -o $@ $<

# Static: its own peak RSS is then small enough not to hide a small program's.
$(BENCH_BUILD)/launch: $(addprefix bench/tools/,launch.c room.c room.h distance.c distance.h cpu.h) \
                       $(BENCH_BUILD)/lib/system.o bench/bench.mk
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(BENCH_CFLAGS) -static -o $@ $(filter %.c %.o,$^)

$(BENCH_BUILD)/witness.so: bench/tools/witness.c bench/lib/provider.h bench/bench.mk
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(BENCH_CFLAGS) -shared -fPIC -o $@ $< -ldl

$(BENCH_BUILD)/waste.so: bench/tools/waste.c include/hakmem.h bench/bench.mk
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(BENCH_CFLAGS) -shared -fPIC -o $@ $< -ldl

$(BENCH_BUILD)/histogram_test: bench/tests/histogram_test.c $(BENCH_HEADERS) bench/bench.mk
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(BENCH_CFLAGS) -o $@ $<

# Kept: they are shared between the preloaded and the linked programs.
.SECONDARY: $(BENCH_PROGRAMS:%=$(BENCH_BUILD)/programs/%.o) $(BENCH_OBJECTS)
