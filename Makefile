# tilepack. `make` builds, `make test` tests, `make demo` shows; see README.md.
#
# Sources are found by wildcard: a new file needs no change here.

BUILD   ?= build
CC      ?= cc
NVCC    ?= $(shell command -v nvcc 2>/dev/null)
PREFIX  ?= /usr/local
PYTHON  ?= python3

WARN     = -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
CFLAGS  ?= -O2 -g
# Same bytes everywhere: no contraction, no fast-math, no flushing.
override CFLAGS += -std=c11 -D_GNU_SOURCE -Isrc -I$(BUILD) -fPIC -ffp-contract=off -pthread $(WARN)
LDLIBS   = -ljansson -lzstd -lxxhash -lm -pthread

BASE     = $(sort $(wildcard src/base/*.c))
KERNELS  = $(sort $(wildcard src/kernels/*.c))
PACK     = $(sort $(wildcard src/pack/*.c))
CLI      = $(sort $(wildcard src/cli/*.c))
FORMATS  = $(sort $(wildcard formats/*.json))
LIB_OBJ  = $(patsubst %.c,$(BUILD)/%.o,$(BASE) $(KERNELS) $(PACK)) $(BUILD)/formats_embedded.o
CLI_OBJ  = $(patsubst %.c,$(BUILD)/%.o,$(CLI))
UNIT     = $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(sort $(wildcard tests/unit/test_*.c)))

all: $(BUILD)/tilepack

$(BUILD)/tilepack: $(CLI_OBJ) $(BUILD)/libtilepack.a
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(CLI_OBJ) $(BUILD)/libtilepack.a $(LDLIBS)

$(BUILD)/libtilepack.a: $(LIB_OBJ)
	rm -f $@ && ar rcs $@ $(LIB_OBJ)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

# `tilepack --version` names the commit.
COMMIT  ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null)
$(BUILD)/src/cli/main.o: override CFLAGS += -DTP_COMMIT='"$(COMMIT)"'

$(BUILD)/formats_embedded.c: $(FORMATS) scripts/embed.sh
	@mkdir -p $(@D)
	sh scripts/embed.sh $(FORMATS) > $@.tmp && mv $@.tmp $@

$(BUILD)/formats_embedded.o: $(BUILD)/formats_embedded.c
	$(CC) $(CFLAGS) -c -o $@ $<

$(BUILD)/unit/%: tests/unit/%.c $(BUILD)/libtilepack.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -MT $@ -o $@ $< $(BUILD)/libtilepack.a \
	    $(LDLIBS) -lcmocka

unit: $(UNIT)
	@set -e; for t in $(UNIT); do $$t; done

clean:
	rm -rf $(BUILD)

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(UNIT:=.d)
.PHONY: all unit clean
