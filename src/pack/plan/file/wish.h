/* Who is to read a result, and where. */
#ifndef TP_PACK_WISH_H
#define TP_PACK_WISH_H

#include "pack/engine/engine.h"

/* What has to read it; {0}: anything, anywhere, on one rank. */
struct tp_wish {
    const struct tp_engine *engine; /* NULL: a server, whichever */
    unsigned sm, ranks;             /* compute capability; tensor-parallel ranks; 0: not said */
    bool whole_experts;             /* ranks divide experts by their number, each is whole */
    bool alone;                     /* no other engine is asked */
};

#endif
