# tilepack. `make` builds, `make test` tests, `make demo` shows; see README.md.
#
# Sources are found by wildcard: a new file needs no change here. Everything is
# built under $(BUILD). Without nvcc (or with NVCC=) all but the CUDA kernels is
# built, and the binary says so when asked for a GPU.

BUILD   ?= build
# One spelling, however it is typed: objects and what they depend on are known by it.
override BUILD := $(patsubst $(CURDIR)/%,%,$(abspath $(BUILD)))
CC      ?= cc
NVCC    ?= $(firstword $(wildcard $(shell command -v nvcc 2>/dev/null) /usr/local/cuda/bin/nvcc))
PREFIX  ?= /usr/local
COMMIT  ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null)
JOBS    ?= $(shell nproc 2>/dev/null || echo 2)

CFLAGS  ?= -O2 -g
WARN     = -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
# Same bytes everywhere: no contraction, no fast-math, no flushing. Same binary
# from any directory: no absolute path gets into it.
override CFLAGS += -std=c11 -D_GNU_SOURCE -Isrc -fPIC -pthread -ffp-contract=off \
                   -ffile-prefix-map=$(CURDIR)=. -ffile-prefix-map=$(BUILD)=build $(WARN)
# What makes an attack on a mistake harder, as far as the compiler has it; HARDEN= builds
# without. Not with a sanitizer, which does its own checking.
ifeq ($(origin HARDEN),undefined)
HARDEN  := $(shell sh scripts/hardening.sh compile '$(CC)' $(CFLAGS))
HARDEN_LINK := $(shell sh scripts/hardening.sh link '$(CC)' $(CFLAGS) $(LDFLAGS))
endif
override CFLAGS  += $(HARDEN)
override LDFLAGS += $(HARDEN_LINK)
LIBS    ?= -ljansson -lpcre2-8 -lzstd -lxxhash -lnettle
LDLIBS   = $(LIBS) -lm -pthread

# Before a command: what it is and of which file, in place of itself, which V=1 shows.
silent   = $(findstring s,$(firstword -$(MAKEFLAGS)))
say      = $(if $(filter 1,$(V)),,@$(if $(silent),,echo '$(1) $(2)' && ))

BASE     = $(sort $(wildcard src/base/*.c))
KERNELS  = $(sort $(wildcard src/kernels/*.c src/kernels/*/*.c))
# The rows of the CPU: for each instruction set an object of each algorithm.
ISAS     = $(patsubst src/kernels/cpu/cpu_%.c,%,$(sort $(wildcard src/kernels/cpu/cpu_*.c)))
ALGORITHMS = $(patsubst src/kernels/cpu/cpu_%.inc,%,$(sort $(wildcard src/kernels/cpu/cpu_*.inc)))
ROW_OBJ  = $(foreach isa,$(ISAS),$(ALGORITHMS:%=$(BUILD)/src/kernels/cpu/$(isa)/%.o))
BENCH    = $(sort $(wildcard src/pack/bench/*.c))
PACK     = $(filter-out $(BENCH),$(sort $(wildcard src/pack/*/*.c src/pack/plan/*/*.c)))
CLI      = $(sort $(wildcard src/cli/*.c))
FORMATS  = $(sort $(wildcard formats/*.json))
MODEL_FILES = $(sort $(wildcard models/*.json))
QUANTIZERS = $(sort $(wildcard quantizers/*.json))
ENGINES  = $(sort $(wildcard engines/*.json))
LIB_OBJ  = $(patsubst %.c,$(BUILD)/%.o,$(BASE) $(KERNELS) $(PACK)) $(ROW_OBJ) \
           $(BUILD)/formats_embedded.o $(BUILD)/models_embedded.o $(BUILD)/quantizers_embedded.o \
           $(BUILD)/engines_embedded.o
# Of the program alone: who links the library measures nothing.
BENCH_OBJ = $(patsubst %.c,$(BUILD)/%.o,$(BENCH))
CLI_OBJ  = $(patsubst %.c,$(BUILD)/%.o,$(CLI))
UNIT     = $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(sort $(wildcard tests/unit/test_*.c)))
# What `make install` puts into share/tilepack and share/doc/tilepack.
SAMPLES  = $(sort $(wildcard samples/*.* samples/Containerfile samples/*/*))
DOCS     = LICENSE README.md CHANGELOG.md SECURITY.md
MAN      = $(sort $(wildcard man/*.[15]))

all: $(BUILD)/tilepack library

# A file may be asked for by its whole path, too.
ifneq ($(filter $(CURDIR)/%,$(MAKECMDGOALS)),)
$(CURDIR)/%: % ;
endif

ifneq ($(NVCC),)
include cuda.mk
else
$(info nvcc not found: building without the CUDA kernels)
endif
include library.mk
include prove.mk

$(BUILD)/tilepack: $(CLI_OBJ) $(BENCH_OBJ) $(BUILD)/libtilepack.a
	$(call say,LD,$@)$(CC) $(CFLAGS) -pie $(LDFLAGS) -o $@ $(CLI_OBJ) $(BENCH_OBJ) $(BUILD)/libtilepack.a $(LDLIBS)

$(BUILD)/libtilepack.a: $(LIB_OBJ)
	@rm -f $@
	$(call say,AR,$@)ar rcsD $@ $(LIB_OBJ)

# Objects made with other flags (or with and without CUDA) do not mix.
$(BUILD)/config: CONTENT = $(CC) $(CFLAGS) $(LDFLAGS) | $(NVCC) $(CUDA_ARCHS)
# Which files are embedded: one that is taken away is no newer than what was made with it.
$(BUILD)/formats.list: CONTENT = $(FORMATS)
$(BUILD)/models.list: CONTENT = $(MODEL_FILES)
$(BUILD)/quantizers.list: CONTENT = $(QUANTIZERS)
$(BUILD)/engines.list: CONTENT = $(ENGINES)
$(BUILD)/config $(if $(NVCC),$(CUDA_BUILD)/cuda.config) $(BUILD)/formats.list $(BUILD)/models.list \
$(BUILD)/quantizers.list $(BUILD)/engines.list: FORCE
	@mkdir -p $(@D)
	@echo '$(subst ','"'"',$(CONTENT))' | cmp -s - $@ || echo '$(subst ','"'"',$(CONTENT))' > $@
FORCE:

$(BUILD)/%.o: %.c $(BUILD)/config
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

# ISA/ALGORITHM.o: what it is made of stands in the .d beside it.
$(ROW_OBJ): $(BUILD)/src/kernels/cpu/%.o: $(BUILD)/config
	@mkdir -p $(@D)
	$(call say,CC,src/kernels/cpu/cpu_$(*F).inc for $(*D))$(CC) $(CFLAGS) -MMD -MP \
	    -DCPU_ALGORITHM='"kernels/cpu/cpu_$(*F).inc"' -c -o $@ src/kernels/cpu/cpu_$(*D).c

$(BUILD)/src/cli/main.o: override CFLAGS += -DTP_COMMIT='"$(COMMIT)"'

$(BUILD)/formats_embedded.c: $(FORMATS) scripts/embed.sh $(BUILD)/formats.list
	$(call say,GEN,$@)sh scripts/embed.sh formats $(FORMATS) > $@.tmp && mv $@.tmp $@

$(BUILD)/models_embedded.c: $(MODEL_FILES) scripts/embed.sh $(BUILD)/models.list
	$(call say,GEN,$@)sh scripts/embed.sh models $(MODEL_FILES) > $@.tmp && mv $@.tmp $@

$(BUILD)/quantizers_embedded.c: $(QUANTIZERS) scripts/embed.sh $(BUILD)/quantizers.list
	$(call say,GEN,$@)sh scripts/embed.sh quantizers $(QUANTIZERS) > $@.tmp && mv $@.tmp $@

$(BUILD)/engines_embedded.c: $(ENGINES) scripts/embed.sh $(BUILD)/engines.list
	$(call say,GEN,$@)sh scripts/embed.sh engines $(ENGINES) > $@.tmp && mv $@.tmp $@

$(BUILD)/%_embedded.o: $(BUILD)/%_embedded.c $(BUILD)/config
	$(call say,CC,$<)$(CC) $(CFLAGS) -c -o $@ $<

$(UNIT:=.o): $(BUILD)/unit/%.o: tests/unit/%.c $(BUILD)/config
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<
$(UNIT): %: %.o $(BUILD)/libtilepack.a
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(LDLIBS) -lcmocka

# The base and the kernels alone, which another machine's compiler makes without the libraries:
# tests/other/arm.sh.
$(BUILD)/kernels.a: $(filter $(BUILD)/src/base/% $(BUILD)/src/kernels/%,$(LIB_OBJ))
	@rm -f $@
	$(call say,AR,$@)ar rcsD $@ $^

# Makes every call of a conversion fail, or the process die at it: tests/fault.
FAULT    = $(BUILD)/fault/fault
FAULT_OBJ = $(patsubst tests/%.c,$(BUILD)/%.o,$(sort $(wildcard tests/fault/*.c)))
$(FAULT_OBJ): $(BUILD)/%.o: tests/%.c $(BUILD)/config
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<
$(FAULT): $(FAULT_OBJ) $(BUILD)/libtilepack.a
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

unit: $(UNIT)
	@set -e; for t in $(UNIT); do $$t; done

# A minute of tests with what is there: installs nothing.
check: say-missing $(BUILD)/tilepack $(UNIT)
	BUILD=$(BUILD) sh tests/run.sh --check

say-missing:
	@missing="$$(sh scripts/deps.sh --print build test)"; [ -z "$$missing" ] || \
	    echo "not here: $$missing; this installs them: sh scripts/deps.sh build test"

# The two commands of the README. Both install what they miss. `make demo-all` shows every format.
demo:
	sh scripts/demo.sh $(BUILD)

demo-all:
	sh scripts/demo.sh $(BUILD) all

test:
	sh scripts/deps.sh build test
	$(MAKE) -j$(JOBS) $(BUILD)/tilepack library prove $(UNIT) $(FAULT) $(REPLAY)
	BUILD=$(BUILD) sh tests/run.sh

# Installing, packages, archives, the image: the ways in which this gets onto a machine.
test-packaging:
	sh scripts/deps.sh build test browser packaging
	$(MAKE) -j$(JOBS) all
	BUILD=$(BUILD) sh tests/run.sh --packaging

# Conversions against cp of the same files, in one run; tables and a picture.
bench: all
	sh scripts/bench.sh $(BUILD)

# What formats and searches cost small models; writes docs/quality.md.
quality: $(BUILD)/tilepack
	sh scripts/quality.sh $(BUILD)

# Everything again under the address and undefined-behaviour sanitizers.
# gcc's checks of object sizes cost the rows four fifths of their compiling, and the address
# sanitizer finds what they would.
asan:
	sh scripts/deps.sh build test
	$(MAKE) -j$(JOBS) BUILD=$(BUILD)/asan NVCC= CFLAGS="-O1 -g -fno-var-tracking -fno-omit-frame-pointer \
	    -fsanitize=address,undefined -fno-sanitize-recover=all" \
	    FAST_ROWS=-fno-sanitize=object-size $(BUILD)/asan/tilepack \
	    $(UNIT:$(BUILD)/%=$(BUILD)/asan/%) $(BUILD)/asan/fault/fault \
	    $(BUILD)/asan/replay/replay
	ASAN_OPTIONS=allocator_may_return_null=1 BUILD=$(BUILD)/asan TILEPACK_TEST_SLOWER=4 \
	    PYTHON="$${PYTHON:-$$(sh scripts/venv.sh $(BUILD))}" sh tests/run.sh --quick

# What runs in several threads, under the thread sanitizer.
TSAN_UNIT = $(patsubst %,$(BUILD)/tsan/unit/test_%,run write_queue sink_file leafhash zst commit load \
              library)
tsan:
	sh scripts/deps.sh build test
	$(MAKE) -j$(JOBS) BUILD=$(BUILD)/tsan NVCC= CFLAGS="-O1 -g -fno-omit-frame-pointer \
	    -fsanitize=thread" $(BUILD)/tsan/tilepack $(TSAN_UNIT)
	PYTHON="$$(sh scripts/venv.sh $(BUILD))" TILEPACK=$(BUILD)/tsan/tilepack sh tests/other/tsan.sh

# The fuzz targets (clang's libFuzzer), SECONDS for each, several at a time (tests/fuzz/run.sh).
SECONDS  ?= 60
FUZZ_CC  ?= clang
FUZZ_SAN = -fno-sanitize-recover=all -fsanitize=address,undefined
FUZZ_SRC = $(sort $(wildcard tests/fuzz/fuzz_*.c))
FUZZ     = $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(FUZZ_SRC))
fuzz: fuzz-build
	sh tests/fuzz/run.sh $(BUILD)/fuzz tests/fuzz/corpus $(SECONDS)
fuzz-build:
	$(MAKE) -j$(JOBS) BUILD=$(BUILD)/fuzz NVCC= CC="$(FUZZ_CC)" \
	    CFLAGS="-O1 -gline-tables-only $(FUZZ_SAN),fuzzer-no-link" FAST_ROWS=-fno-sanitize=all $(FUZZ)
# The fast rows are not what is fuzzed, and with sanitizers they take minutes to compile:
# `make asan` has them.
$(ROW_OBJ): override CFLAGS += $(FAST_ROWS)

# What targets link, as far as they call it: the library, and the whole command line with its
# main() renamed.
FUZZ_LIB = $(BUILD)/cli.a $(BUILD)/libtilepack.a
$(BUILD)/fuzz_main.o: src/cli/main.c $(BUILD)/config
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS) -Wno-missing-prototypes -Dmain=tilepack_main -c -o $@ $<
$(BUILD)/cli.a: $(BUILD)/fuzz_main.o $(filter-out %/main.o,$(CLI_OBJ)) $(BENCH_OBJ)
	@rm -f $@
	$(call say,AR,$@)ar rcsD $@ $^
$(BUILD)/fuzz_%: tests/fuzz/fuzz_%.c $(wildcard tests/fuzz/*.h) $(FUZZ_LIB)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -fsanitize=fuzzer -static-libstdc++ -static-libgcc \
	    -o $@ $< $(FUZZ_LIB) $(LDLIBS)

# The same targets on files, with any compiler: what tests/cli/fuzz_corpus.sh runs.
REPLAY   = $(BUILD)/replay/replay
REPLAY_OBJ = $(patsubst tests/fuzz/%.c,$(BUILD)/replay/%.o,$(FUZZ_SRC))
$(BUILD)/replay/%.o: tests/fuzz/%.c $(wildcard tests/fuzz/*.h) $(BUILD)/config
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS) -MMD -MP -DLLVMFuzzerTestOneInput=$*_input -c -o $@ $<
$(REPLAY): tests/fuzz/replay.c $(REPLAY_OBJ) $(FUZZ_LIB)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -DTARGETS="$(patsubst tests/fuzz/fuzz_%.c,X(%),$(FUZZ_SRC))" \
	    -o $@ $< $(REPLAY_OBJ) $(FUZZ_LIB) $(LDLIBS)

# The kernels on aarch64: cross-built, run under qemu-user.
test-arm:
	sh scripts/deps.sh build arm
	BUILD=$(BUILD) sh tests/other/arm.sh

# A real Slurm on this machine runs samples/slurm/; needs root. Not a part of `test`.
test-slurm:
	sh scripts/deps.sh build test slurm
	$(MAKE) -j$(JOBS) $(BUILD)/tilepack
	BUILD=$(BUILD) PYTHON="$$(sh scripts/venv.sh $(BUILD))" sh tests/other/slurm.sh

# vLLM itself, told that it has a GPU, loads packed checkpoints: 9 GB. Not a part of `test`.
test-vllm:
	sh scripts/deps.sh build test
	$(MAKE) -j$(JOBS) $(BUILD)/tilepack library
	BUILD=$(BUILD) PYTHON="$$(sh scripts/venv.sh $(BUILD))" TILEPACK=$(BUILD)/tilepack \
	    sh -c "sh tests/other/vllm.sh && sh tests/other/vllm_loading.sh"

# vLLM on a real GPU, packed beside stock: packs pieces for a machine without network, and runs them where
# a GPU is. SERVE="GROUP ..." are only these of tests/gpu/serve/plan.py. Not a part of `test`.
test-serve:
	$(MAKE) -j$(JOBS) $(BUILD)/tilepack library
	BUILD=$(BUILD) TILEPACK=$(BUILD)/tilepack VLLM_PYTHON="$(VLLM_PYTHON)" \
	    sh tests/gpu/serve/serve.sh $(SERVE)

# Small models of every family in transformers, with compressed-tensors, and in vLLM where there is
# one: 6 GB for the first, or MODELS_PYTHON. MODELS=--all takes more than twenty families, MODELS="NAME ..."
# only these, and MODELS=--writers is what other programs write. Not a part of `test`.
VLLM_PYTHON ?= $(wildcard $(BUILD)/venv-vllm/bin/python)
test-models:
	sh scripts/deps.sh build test
	$(MAKE) -j$(JOBS) $(BUILD)/tilepack $(BUILD)/libtilepack.so
	BUILD=$(BUILD) PYTHON="$$(sh scripts/venv.sh $(BUILD))" TILEPACK=$(BUILD)/tilepack \
	    VLLM_PYTHON="$(VLLM_PYTHON)" sh tests/other/models.sh $(MODELS)

# Everything that needs a GPU: rows, sanitizers, goldens through --device cuda.
GPU_TESTS = $(BUILD)/gpu/test_cuda $(BUILD)/gpu/test_device $(BUILD)/gpu/test_library_cuda \
            $(BUILD)/gpu/test_gemm
CUDA_INC  = -isystem $(CUDA_HOME)/include
$(BUILD)/gpu/%: tests/gpu/%.c $(BENCH_OBJ) $(BUILD)/libtilepack.a
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(CUDA_INC) $(LDFLAGS) -o $@ $< $(BENCH_OBJ) $(BUILD)/libtilepack.a $(LDLIBS)
$(BUILD)/gpu/%: tests/gpu/%.cu $(BUILD)/libtilepack.a
	@mkdir -p $(@D)
	$(call say,NVCC,$<)$(NVCC) $(NVFLAGS) -c -o $@.o $<
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $@.o $(BUILD)/libtilepack.a $(LDLIBS)

gpu-tests: $(GPU_TESTS)

test-gpu: all gpu-tests prove $(BUILD)/unit/test_plugin
	TILEPACK_TEST_LONG=1 $(BUILD)/unit/test_plugin
	sh tests/gpu/run.sh $(BUILD)/gpu/test_cuda $(BUILD)/tilepack $(BUILD)/gpu

# The source of this commit, the same bytes on every machine, and its bill of materials, with
# the versions of the libraries of this one.
ARCHIVE  = $(BUILD)/tilepack-$(VERSION).tar.gz
dist:
	@mkdir -p $(BUILD)
	git archive --format=tar --prefix=tilepack-$(VERSION)/ HEAD | gzip -9n > $(ARCHIVE)
	sh scripts/sbom.sh $(ARCHIVE) $(VERSION) $(LIBS) > $(BUILD)/tilepack-$(VERSION).spdx.json.tmp
	mv $(BUILD)/tilepack-$(VERSION).spdx.json.tmp $(BUILD)/tilepack-$(VERSION).spdx.json

# The Python package with the program and the library inside; see scripts/wheel.sh.
wheel:
	sh scripts/deps.sh build test wheel
	sh scripts/wheel.sh $(BUILD)
wheel-arm:
	sh scripts/deps.sh build test wheel arm
	sh scripts/wheel.sh $(BUILD) aarch64

# The program of the wheel alone, which runs on any Linux, as an archive.
static: all wheel
	sh scripts/static.sh $(BUILD) $(VERSION)

# Every file of a release, from a clone of this commit: docs/releasing.md.
release:
	sh scripts/deps.sh build test wheel arm
	sh scripts/release.sh $(BUILD) $(VERSION)

# Two builds of the committed source must be the same bytes.
reproducible:
	sh scripts/deps.sh build
	sh scripts/reproducible.sh

lint:
	sh scripts/deps.sh build lint
	sh scripts/lint.sh

deps:
	sh scripts/deps.sh build test lint

install: install-program install-library

install-program: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 \
	    $(DESTDIR)$(PREFIX)/share/man/man5 \
	    $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
	    $(DESTDIR)$(PREFIX)/share/zsh/site-functions \
	    $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	install -m 755 $(BUILD)/tilepack $(DESTDIR)$(PREFIX)/bin/
	for page in $(MAN); do install -m 644 $$page \
	    $(DESTDIR)$(PREFIX)/share/man/man$${page##*.}/ || exit 1; done
	ln -sf tilepack-convert.1 $(DESTDIR)$(PREFIX)/share/man/man1/tilepack-plan.1
	for file in $(SAMPLES); do install -d $(DESTDIR)$(PREFIX)/share/tilepack/$${file%/*} && \
	    install -m 644 $$file $(DESTDIR)$(PREFIX)/share/tilepack/$$file || exit 1; done
	install -d $(DESTDIR)$(PREFIX)/share/doc/tilepack
	install -m 644 $(DOCS) $(DESTDIR)$(PREFIX)/share/doc/tilepack/
	$(BUILD)/tilepack completions bash > \
	    $(DESTDIR)$(PREFIX)/share/bash-completion/completions/tilepack
	$(BUILD)/tilepack completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_tilepack
	$(BUILD)/tilepack completions fish > \
	    $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/tilepack.fish

# A package for Debian and Ubuntu, of the program without the library.
deb: all
	sh scripts/deb.sh $(BUILD) $(VERSION)

# What `install` with the same DESTDIR and PREFIX put there, and no folder.
uninstall: uninstall-library
	rm -f $(DESTDIR)$(PREFIX)/bin/tilepack $(foreach page,$(MAN),\
	    $(DESTDIR)$(PREFIX)/share/man/man$(subst .,,$(suffix $(page)))/$(notdir $(page))) \
	    $(DESTDIR)$(PREFIX)/share/man/man1/tilepack-plan.1 \
	    $(SAMPLES:%=$(DESTDIR)$(PREFIX)/share/tilepack/%) \
	    $(DOCS:%=$(DESTDIR)$(PREFIX)/share/doc/tilepack/%) \
	    $(DESTDIR)$(PREFIX)/share/bash-completion/completions/tilepack \
	    $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_tilepack \
	    $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/tilepack.fish

clean:
	rm -rf $(BUILD)

-include $(LIB_OBJ:.o=.d) $(BENCH_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(UNIT:=.d) $(FAULT_OBJ:.o=.d) \
    $(REPLAY_OBJ:.o=.d)
.PHONY: FORCE all unit check say-missing demo demo-all test test-packaging test-gpu gpu-tests dist wheel static reproducible bench quality test-slurm test-arm asan tsan fuzz fuzz-build lint deps install install-program deb uninstall wheel-arm release test-vllm test-serve test-models clean
