# CUDA part of the build, included by the Makefile when nvcc is there (NVCC set).
# Adds the kernels to the library and -DTP_HAVE_CUDA to the C files. The runtime is
# linked statically: the binary runs on machines without a driver.
#
# CUDA_ARCHS: chips with machine code of their own; CUDA_PTX: what later chips compile
# for themselves. CUDA_BUILD: where the kernels' objects lie, which builds with other C
# compilers may share: that of the wheel takes those of `make`.

CUDA_ARCHS ?= 80 89 90a 100a 120a
CUDA_PTX   ?= 90
CUDA_BUILD ?= $(BUILD)
CUDA_HOME  ?= $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
CUDA_LIB   ?= $(firstword $(wildcard $(CUDA_HOME)/lib64 $(CUDA_HOME)/targets/x86_64-linux/lib))

CUDA_SRC  = $(sort $(wildcard src/kernels/cuda/cuda_*.cu))
CUDA_OBJ  = $(patsubst %.cu,$(CUDA_BUILD)/%.o,$(CUDA_SRC))
# The PTX, and the machine code of the chips that it is for, are made in one go: no kernel has
# instructions of sm_90a alone, and its code was the same to the last one with its own PTX.
PTX_CHIPS = $(foreach a,$(CUDA_PTX),$(filter $(a) $(a)a,$(CUDA_ARCHS)))
CUDA_GEN  = $(foreach a,$(filter-out $(PTX_CHIPS),$(CUDA_ARCHS)),-gencode=arch=compute_$(a),code=sm_$(a)) \
            $(foreach a,$(CUDA_PTX),'-gencode=arch=compute_$(a),code=[$(patsubst %,sm_%$(comma),$(filter \
            $(a) $(a)a,$(CUDA_ARCHS)))compute_$(a)]')
comma    := ,
# Same bytes everywhere: no contraction, no flushing, correctly rounded division.
NVFLAGS   = -std=c++17 -O3 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true -Isrc \
            --threads 2 $(CUDA_GEN) -Xcompiler -fPIC,-ffp-contract=off,-Wall,-Wextra \
            -Werror all-warnings -DTP_HAVE_CUDA $(addprefix -Xcompiler ,$(HARDEN))

override CFLAGS += -DTP_HAVE_CUDA
LIB_OBJ  += $(CUDA_OBJ)
BENCH_OBJ += $(patsubst %.cu,$(CUDA_BUILD)/%.o,$(sort $(wildcard src/pack/bench/*.cu)))
LDLIBS   += -L$(CUDA_LIB) -lcudart_static -ldl -lrt -lpthread -lstdc++

# Kept steps have names made from the source's; the temporary ones, of the process, would
# get into the object.
$(CUDA_BUILD)/%.o: %.cu $(CUDA_BUILD)/cuda.config
	@mkdir -p $(@:.o=.steps)
	$(call say,NVCC,$<)$(NVCC) $(NVFLAGS) --keep --keep-dir $(@:.o=.steps) -MMD -MF $(@:.o=.d) -MT $@ -c -o $@ $<
	@rm -rf $(@:.o=.steps)

$(CUDA_BUILD)/cuda.config: CONTENT = $(NVCC) $(NVFLAGS)
