# CUDA part of the build, included by the Makefile when nvcc is there (NVCC set).
# Adds the kernels to the library and -DTP_HAVE_CUDA to the C files. The runtime is
# linked statically: the binary runs on machines without a driver.
#
# CUDA_ARCHS: chips with machine code of their own; CUDA_PTX: what later chips compile
# for themselves.

CUDA_ARCHS ?= 80 89 90a 100a 120a
CUDA_PTX   ?= 90
CUDA_HOME  ?= $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
CUDA_LIB   ?= $(firstword $(wildcard $(CUDA_HOME)/lib64 $(CUDA_HOME)/targets/x86_64-linux/lib))

CUDA_SRC  = $(sort $(wildcard src/kernels/cuda/cuda_*.cu))
CUDA_OBJ  = $(patsubst %.cu,$(BUILD)/%.o,$(CUDA_SRC))
CUDA_GEN  = $(foreach a,$(CUDA_ARCHS),-gencode=arch=compute_$(a),code=sm_$(a)) \
            $(foreach a,$(CUDA_PTX),-gencode=arch=compute_$(a),code=compute_$(a))
# Same bytes everywhere: no contraction, no flushing, correctly rounded division.
NVFLAGS   = -std=c++17 -O3 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true -Isrc \
            --threads 2 $(CUDA_GEN) -Xcompiler -fPIC,-ffp-contract=off,-Wall,-Wextra \
            -Werror all-warnings -DTP_HAVE_CUDA $(addprefix -Xcompiler ,$(HARDEN))

override CFLAGS += -DTP_HAVE_CUDA
LIB_OBJ  += $(CUDA_OBJ)
BENCH_OBJ += $(patsubst %.cu,$(BUILD)/%.o,$(sort $(wildcard src/pack/bench/*.cu)))
LDLIBS   += -L$(CUDA_LIB) -lcudart_static -ldl -lrt -lpthread -lstdc++

# Kept steps have names made from the source's; the temporary ones, of the process, would
# get into the object.
$(BUILD)/%.o: %.cu $(BUILD)/config
	@mkdir -p $(@:.o=.steps)
	$(call say,NVCC,$<)$(NVCC) $(NVFLAGS) --keep --keep-dir $(@:.o=.steps) -MMD -MF $(@:.o=.d) -MT $@ -c -o $@ $<
	@rm -rf $(@:.o=.steps)
