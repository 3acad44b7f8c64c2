# The plug-in of `tilepack prove`: libtilepack_prove.so, GEMM kernels of CUTLASS for Hopper. Never
# a part of `make`: it needs nvcc and CUTLASS's headers, which the Python package nvidia-cutlass
# brings, and a compiler takes 5 GB of memory and minutes for each schedule. Included by the
# Makefile.
#
#   make prove                     the schedules that vLLM's heuristic and DeepGEMM's planner take
#   make prove SCHEDULES=all       every one, for --tune
#   make prove SCHEDULES="128x16_1x1x1 128x32_1x1x1"
#   PROVE_JOBS=16                  compilers at a time, 5 GB each; by default one
#   CUTLASS=DIR                    another CUTLASS: its directory with include/ and tools/

PROVE_JOBS ?= 1
PROVE_LIB = $(BUILD)/libtilepack_prove.so
PROVE_GROUPED = $(foreach s,128x16_1 128x16_2 256x16_1 256x16_2 256x32_1 256x32_2 256x64_1 \
                256x64_2 256x128_1 256x128_2 128x256_2,Kernel_$(s)x1x1_Coop)
PROVE_DENSE = $(addsuffix x1x1,256x128_1 256x64_1 256x32_1 256x16_1 128x256_2 128x256_1 \
              128x128_1 128x64_1 128x32_1 128x16_1)
PROVE_FP8 = 64x128_1x1_Ping 64x128_2x1_Ping 64x128_1x2_Ping 128x128_1x1_Coop 128x128_2x1_Coop \
            128x128_1x2_Coop
PROVE_ALL = $(PROVE_GROUPED) $(PROVE_DENSE) $(PROVE_FP8)
PROVE_HEURISTIC = $(foreach s,128x16_2 256x32_1 256x64_1 256x128_2 128x256_2,Kernel_$(s)x1x1_Coop) \
                  $(addsuffix x1x1,128x16_1 128x32_1 128x64_1 128x128_1 128x256_1 128x256_2) \
                  64x128_1x1_Ping 128x128_2x1_Coop 128x128_1x2_Coop
SCHEDULES ?= $(PROVE_HEURISTIC)
PROVE_NAMES = $(if $(filter all,$(SCHEDULES)),$(PROVE_ALL),$(SCHEDULES))
PROVE_OBJ = $(PROVE_NAMES:%=$(BUILD)/prove/%.o)

# Resolved when the plug-in is built, and only then.
CUTLASS ?= $(shell "$$(sh scripts/venv.sh $(BUILD) cutlass)" -c \
    'import importlib.util as u; print(u.find_spec("cutlass_library").submodule_search_locations[0])')/source
PROVE_FLAGS = -std=c++17 -O3 -DNDEBUG -gencode=arch=compute_90a,code=sm_90a -Isrc \
              --expt-relaxed-constexpr -Xcompiler -fPIC,-fvisibility=hidden \
              -isystem $(CUTLASS)/include -isystem $(CUTLASS)/tools/util/include

prove:
ifeq ($(NVCC),)
	@echo "make prove: nvcc is not here; the plug-in is CUDA code, of CUDA 12.4 or later" >&2; exit 1
else
	@$(MAKE) --no-print-directory -j$(PROVE_JOBS) $(PROVE_LIB) CUTLASS="$(CUTLASS)"
endif

$(patsubst %,$(BUILD)/prove/%.o,$(PROVE_GROUPED) $(PROVE_DENSE)): plugin/prove_w4a8.cu
$(patsubst %,$(BUILD)/prove/%.o,$(PROVE_FP8)): plugin/prove_fp8.cu
$(BUILD)/prove/%.o: plugin/prove_launch.cuh src/pack/prove/tilepack_prove.h scripts/prove_flags.sh
	@mkdir -p $(@D)
	$(call say,NVCC,$@)set -e; flags="$$(sh scripts/prove_flags.sh $*)"; eval $(NVCC) $(PROVE_FLAGS) -c -o $@ "$$flags"

$(BUILD)/prove/plugin.o: plugin/prove_plugin.cu plugin/prove_launch.cuh \
                         src/pack/prove/tilepack_prove.h
	@mkdir -p $(@D)
	$(call say,NVCC,$<)$(NVCC) $(PROVE_FLAGS) -c -o $@ $<

# The table of what was built, in the order of SCHEDULES.
$(BUILD)/prove/table.c: FORCE
	@mkdir -p $(@D)
	@{ echo '#include "pack/prove/tilepack_prove.h"'; \
	   for s in $(PROVE_NAMES); do echo "extern const struct tilepack_prove_kernel tilepack_prove_$$s;"; done; \
	   echo 'const struct tilepack_prove_kernel *const tilepack_prove_table[] = {'; \
	   for s in $(PROVE_NAMES); do echo "    &tilepack_prove_$$s,"; done; \
	   echo '};'; echo 'const uint32_t tilepack_prove_table_count = $(words $(PROVE_NAMES));'; } > $@.tmp
	@cmp -s $@.tmp $@ && rm $@.tmp || mv $@.tmp $@

$(PROVE_LIB): $(PROVE_OBJ) $(BUILD)/prove/plugin.o $(BUILD)/prove/table.c
	$(call say,LD,$@)$(NVCC) -shared -cudart static -Isrc -Xcompiler -fPIC,-fvisibility=hidden \
	    -Xlinker -z,defs -o $@ $(PROVE_OBJ) $(BUILD)/prove/plugin.o $(BUILD)/prove/table.c

# Beside the library; `make install` leaves it out.
install-prove:
	install -d $(DESTDIR)$(PREFIX)/lib
	install -m 755 $(PROVE_LIB) $(DESTDIR)$(PREFIX)/lib/

.PHONY: prove install-prove
