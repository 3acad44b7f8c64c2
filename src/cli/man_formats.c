/* The format tables of tilepack-formats(5), in mdoc, from the embedded formats. */
#include "cli/help.h"
#include "pack/engine/engine.h"
#include "pack/format/format.h"
#include "pack/format/format_keywords.h"

#include <stdio.h>

static void put_params(FILE *out, const struct tp_format *format)
{
    if (!format->params)
        return;
    fputs(".Pp\nParameters:\n.Bl -tag -width Ds -compact\n", out);
    for (uint32_t p = 0; p < format->params; p++) {
        const struct tp_param *param = &format->param[p];
        fprintf(out, ".It Cm %s Ns = Ns ", param->key);
        for (uint32_t c = 0; c < param->count; c++)
            fprintf(out, "%s%s", c ? " | " : "", param->choices[c]);
        fputc('\n', out);
        tp_mdoc_text(out, param->help, false);
        fprintf(out, "The default is\n.Cm %s .\n", param->choices[0]);
        for (uint32_t c = 0; c < param->count; c++)
            for (uint32_t a = 0; param->aliases[c][a]; a++)
                fprintf(out, ".Cm %s\nis another name of\n.Cm %s .\n", param->aliases[c][a],
                        param->choices[c]);
    }
    fputs(".El\n", out);
}

static void put_rules(FILE *out, const char *title, const struct tp_shape_rule *rules,
                      uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        fprintf(out, ".Pp\n%s %c a multiple of %llu", title, rules[i].dim,
                (unsigned long long)rules[i].multiple);
        fputs(":\n", out);
        tp_mdoc_text(out, rules[i].why, false);
    }
}

static void put_outputs(FILE *out, const struct tp_format *format)
{
    fputs(".Pp\nTensors:\n.Bl -tag -width Ds -compact\n", out);
    for (uint32_t i = 0; i < format->op.outs; i++) {
        const struct tp_format_out *output = &format->out[i];
        fprintf(out, ".It Va %s\n%s [", output->suffix, tp_dtype_name(output->dtype));
        for (uint32_t d = 0; d < output->rank; d++)
            fprintf(out, "%s%s", d ? ", " : "", output->shape[d]);
        fprintf(out, "]:\n%s, element %s\n", tp_role_name(format->op.out[i].role),
                tp_element_name(format->op.out[i].element));
        if (format->out[i].layout)
            fprintf(out, ".br\nlayout\n.Li %s\n", format->out[i].layout);
    }
    fputs(".El\n", out);
}

void tp_man_formats(FILE *out)
{
    size_t count;
    char readers[300];
    const struct tp_format *const *formats = tp_formats(&count);
    for (size_t i = 0; i < count; i++) {
        const struct tp_format *format = formats[i];
        fprintf(out, ".Ss %s\n", format->name);
        tp_mdoc_text(out, format->title, false);
        fputs(".Pp\n", out);
        tp_mdoc_text(out, format->about, false);
        fprintf(out, ".Pp\n%s:\n", format->input_only ? "Not written; read by" : "Read by");
        tp_mdoc_text(out, tp_format_readers(format, readers, sizeof readers), false);
        put_params(out, format);
        put_rules(out, "Needs", format->need, format->needs);
        put_rules(out, "The consumer wants", format->want, format->wants);
        put_outputs(out, format);
    }
}
