build/cov/src/kernels/cpu/cpu_avx2.o: src/kernels/cpu/cpu_avx2.c \
 src/kernels/op/row_set.h src/kernels/op/distance.h \
 src/kernels/op/kernel.h src/base/dtype.h src/base/error.h src/base/isa.h \
 src/base/layout.h src/base/num.h src/kernels/op/codec.h \
 src/kernels/op/place.h src/kernels/op/plane.h src/kernels/op/scalar.h \
 src/kernels/op/search.h src/kernels/op/search_scalar.h \
 src/kernels/cpu/vec_avx2.h src/kernels/cpu/vec_common.h \
 src/kernels/cpu/cpu_words.inc src/kernels/cpu/cpu_run.inc \
 src/kernels/cpu/cpu_fp8.inc src/kernels/cpu/cpu_mx.inc \
 src/kernels/cpu/cpu_nwise.inc src/kernels/cpu/cpu_int4.inc \
 src/kernels/cpu/cpu_int.inc src/kernels/cpu/cpu_fp4.inc \
 src/kernels/cpu/cpu_search.inc src/kernels/cpu/cpu_search_e2m1.inc \
 src/kernels/cpu/cpu_search_fp4.inc src/kernels/cpu/cpu_search_int4.inc \
 src/kernels/cpu/cpu_search_w4a8.inc src/kernels/cpu/cpu_decode.inc \
 src/kernels/cpu/cpu_repack.inc src/kernels/cpu/cpu_distance.inc \
 src/kernels/cpu/cpu_place.inc src/kernels/cpu/cpu_rows.inc
src/kernels/op/row_set.h:
src/kernels/op/distance.h:
src/kernels/op/kernel.h:
src/base/dtype.h:
src/base/error.h:
src/base/isa.h:
src/base/layout.h:
src/base/num.h:
src/kernels/op/codec.h:
src/kernels/op/place.h:
src/kernels/op/plane.h:
src/kernels/op/scalar.h:
src/kernels/op/search.h:
src/kernels/op/search_scalar.h:
src/kernels/cpu/vec_avx2.h:
src/kernels/cpu/vec_common.h:
src/kernels/cpu/cpu_words.inc:
src/kernels/cpu/cpu_run.inc:
src/kernels/cpu/cpu_fp8.inc:
src/kernels/cpu/cpu_mx.inc:
src/kernels/cpu/cpu_nwise.inc:
src/kernels/cpu/cpu_int4.inc:
src/kernels/cpu/cpu_int.inc:
src/kernels/cpu/cpu_fp4.inc:
src/kernels/cpu/cpu_search.inc:
src/kernels/cpu/cpu_search_e2m1.inc:
src/kernels/cpu/cpu_search_fp4.inc:
src/kernels/cpu/cpu_search_int4.inc:
src/kernels/cpu/cpu_search_w4a8.inc:
src/kernels/cpu/cpu_decode.inc:
src/kernels/cpu/cpu_repack.inc:
src/kernels/cpu/cpu_distance.inc:
src/kernels/cpu/cpu_place.inc:
src/kernels/cpu/cpu_rows.inc:
