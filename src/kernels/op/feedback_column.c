/* One column's sums by a compiler that knows no instruction set; see feedback_column.h. */
#include "kernels/op/feedback_column.h"

double tp_feedback_column_ref(const struct tp_feedback_sums *s, double d, float *g)
{
    return feedback_column(s, d, g);
}
