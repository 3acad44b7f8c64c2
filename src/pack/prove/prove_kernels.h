/* Which kernel a weight will meet, and which of the plug-in's is that one.
 */
#ifndef TP_PACK_PROVE_KERNELS_H
#define TP_PACK_PROVE_KERNELS_H

#include "pack/prove/prove_load.h"
#include "pack/schedule/schedule.h"

enum { TP_PROVE_NAME = 64 };

/* What the consumer's planner says of m rows for each expert. */
struct tp_prove_prediction {
    struct tp_sched_problem problem; /* m: of all experts */
    struct tp_sched_config config;
    char name[TP_PROVE_NAME]; /* as `tilepack schedule` prints it: a name, or the tile; "" when
                                 the planner refuses */
};

/* `kind`: enum tilepack_prove_kind. */
enum tp_code tp_prove_predict(uint32_t kind, const struct tilepack_prove_problem *problem,
                              uint32_t sms, struct tp_prove_prediction *prediction,
                              struct tp_err *err);

/* The plug-in's kernel that is nearest to the prediction: that schedule itself where it was
 * built. NULL when no kernel of that kind takes the problem. */
const struct tilepack_prove_kernel *tp_prove_nearest(const struct tilepack_prove_plugin *plugin,
                                                     uint32_t kind,
                                                     const struct tilepack_prove_problem *problem,
                                                     const struct tp_prove_prediction *prediction);

/* Whether kernel i of the plug-in is of that kind and takes the problem. */
bool tp_prove_takes(const struct tilepack_prove_plugin *plugin, uint32_t i, uint32_t kind,
                    const struct tilepack_prove_problem *problem);

#endif
