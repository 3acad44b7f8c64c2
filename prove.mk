# The plug-in of `tilepack prove`: libtilepack_prove.so. Its FP8 GEMM is CUDA C++ that the plug-in
# carries as text and compiles when it is run (NVRTC): it needs nothing here but the C compiler.
# The schedules of W4A8 are CUTLASS's: they need nvcc and CUTLASS's headers, which the Python
# package nvidia-cutlass brings, and a compiler takes 5 GB of memory and minutes for each. Never a
# part of `make`. Included by the Makefile.
#
#   make prove                     FP8 alone
#   make prove SCHEDULES=w4a8      and the schedules that vLLM's heuristic takes
#   make prove SCHEDULES=all       and every one, for --tune
#   make prove SCHEDULES="128x16_1x1x1 128x32_1x1x1"
#   PROVE_JOBS=16                  compilers at a time, 5 GB each; by default one
#   CUTLASS=DIR                    another CUTLASS: its directory with include/ and tools/

PROVE_JOBS ?= 1
PROVE_LIB = $(BUILD)/libtilepack_prove.so
PROVE_GROUPED = $(foreach s,128x16_1 128x16_2 256x16_1 256x16_2 256x32_1 256x32_2 256x64_1 \
                256x64_2 256x128_1 256x128_2 128x256_2,Kernel_$(s)x1x1_Coop)
PROVE_DENSE = $(addsuffix x1x1,256x128_1 256x64_1 256x32_1 256x16_1 128x256_2 128x256_1 \
              128x128_1 128x64_1 128x32_1 128x16_1)
PROVE_HEURISTIC = $(foreach s,128x16_2 256x32_1 256x64_1 256x128_2 128x256_2,Kernel_$(s)x1x1_Coop) \
                  $(addsuffix x1x1,128x16_1 128x32_1 128x64_1 128x128_1 128x256_1 128x256_2)
SCHEDULES ?=
PROVE_NAMES = $(strip $(if $(filter all,$(SCHEDULES)),$(PROVE_GROUPED) $(PROVE_DENSE),\
              $(if $(filter w4a8,$(SCHEDULES)),$(PROVE_HEURISTIC),$(SCHEDULES))))
PROVE_OBJ = $(PROVE_NAMES:%=$(BUILD)/prove/%.o)

# All but the table that a plug-in is entered by: tests link it, too. And what it is made with of
# the library, of which the rest may take minutes to compile (CUDA).
PLUGIN_PARTS = $(patsubst %.c,$(BUILD)/%.o,$(filter-out plugin/plugin.c,$(sort \
               $(wildcard plugin/*.c)))) $(BUILD)/plugin_embedded.o
PLUGIN_BASE  = $(patsubst %.c,$(BUILD)/%.o,$(BASE) $(sort $(wildcard src/pack/os/*.c)) \
               src/pack/text/text.c src/pack/text/json_scan.c \
               src/pack/file/sha256.c src/pack/file/hash_text.c)
PLUGIN_TEXT = plugin/differences.cu plugin/fp8_gemm.cu

$(BUILD)/plugin/%.o: plugin/%.c $(BUILD)/config
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS) -fvisibility=hidden -MMD -MP -c -o $@ $<

$(BUILD)/plugin_embedded.c: $(PLUGIN_TEXT) scripts/embed.sh
	@mkdir -p $(@D)
	$(call say,GEN,$@)sh scripts/embed.sh plugin $(PLUGIN_TEXT) > $@.tmp && mv $@.tmp $@

$(BUILD)/unit/test_plugin: $(PLUGIN_PARTS)
$(BUILD)/unit/test_plugin: override LDLIBS := $(BUILD)/libtilepack.a $(LDLIBS) -ldl

$(BUILD)/gpu/test_gemm: tests/gpu/test_gemm.c $(PLUGIN_PARTS) $(BUILD)/libtilepack.a
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS) -ldl

# Resolved when schedules are built, and only then.
CUTLASS ?= $(shell "$$(sh scripts/venv.sh $(BUILD) cutlass)" -c \
    'import importlib.util as u; print(u.find_spec("cutlass_library").submodule_search_locations[0])')/source
PROVE_FLAGS = -std=c++17 -O3 -DNDEBUG -gencode=arch=compute_90a,code=sm_90a -Isrc \
              --expt-relaxed-constexpr -Xcompiler -fPIC,-fvisibility=hidden \
              -isystem $(CUTLASS)/include -isystem $(CUTLASS)/tools/util/include

prove:
ifneq ($(strip $(SCHEDULES)),)
ifeq ($(NVCC),)
	@echo "make prove: nvcc is not here; the schedules of W4A8 need it, of CUDA 12.4 or later" >&2; exit 1
endif
	@$(MAKE) --no-print-directory -j$(PROVE_JOBS) $(PROVE_LIB) CUTLASS="$(CUTLASS)"
else
	@$(MAKE) --no-print-directory $(PROVE_LIB)
endif

$(BUILD)/prove/%.o: plugin/prove_w4a8.cu plugin/prove_launch.cuh src/pack/prove/tilepack_prove.h \
                    scripts/prove_flags.sh
	@mkdir -p $(@D)
	$(call say,NVCC,$@)set -e; flags="$$(sh scripts/prove_flags.sh $*)"; eval $(NVCC) $(PROVE_FLAGS) -c -o $@ "$$flags"

# The table of what was built, in the order of SCHEDULES.
$(BUILD)/prove/table.c: FORCE
	@mkdir -p $(@D)
	@{ echo '#include "pack/prove/tilepack_prove.h"'; \
	   for s in $(PROVE_NAMES); do echo "extern const struct tilepack_prove_kernel tilepack_prove_$$s;"; done; \
	   echo 'extern const struct tilepack_prove_kernel *const tilepack_prove_table[];'; \
	   echo 'extern const uint32_t tilepack_prove_table_count;'; \
	   echo 'const struct tilepack_prove_kernel *const tilepack_prove_table[] = {'; \
	   for s in $(PROVE_NAMES); do echo "    &tilepack_prove_$$s,"; done; \
	   echo '    0};'; echo 'const uint32_t tilepack_prove_table_count = $(words $(PROVE_NAMES));'; } > $@.tmp
	@cmp -s $@.tmp $@ && rm $@.tmp || mv $@.tmp $@

# CUTLASS's kernels bring CUDA's runtime, linked statically.
PROVE_RUNTIME = $(if $(PROVE_NAMES),-L$(CUDA_LIB) -lcudart_static -lrt -lstdc++)

# It exports what plugin.map says.
$(PROVE_LIB): $(PROVE_OBJ) $(BUILD)/plugin/plugin.o $(PLUGIN_PARTS) $(PLUGIN_BASE) \
              $(BUILD)/prove/table.o plugin/plugin.map
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-z,defs -Wl,--version-script=plugin/plugin.map -o $@ \
	    $(filter %.o,$^) $(PROVE_RUNTIME) $(LIBS) -lm -pthread -ldl

$(BUILD)/prove/table.o: $(BUILD)/prove/table.c
	$(call say,CC,$<)$(CC) $(CFLAGS) -fvisibility=hidden -c -o $@ $<

# Beside the library; `make install` leaves it out.
install-prove:
	install -d $(DESTDIR)$(PREFIX)/lib
	install -m 755 $(PROVE_LIB) $(DESTDIR)$(PREFIX)/lib/

-include $(wildcard $(BUILD)/plugin/*.d)

.PHONY: prove install-prove
