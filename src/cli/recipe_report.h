/* What `tilepack recipe` chose: the recipe's text, a table, JSON and a page.
 */
#ifndef TP_CLI_RECIPE_REPORT_H
#define TP_CLI_RECIPE_REPORT_H

#include "pack/recipe/recipe.h"
#include "pack/text/text.h"

#include <stdio.h>

struct tp_recipe_report {
    const char *source, *output; /* their paths, as they were typed */
    const struct tp_recipe_wish *wish;
    const struct tp_recipe *recipe;
    double seconds;
};

/* All sets in one format: false where one of them cannot be. */
bool tp_recipe_uniform(const struct tp_recipe *recipe, size_t format, uint64_t *bytes,
                       double *error);
/* What set s has in a format that it may take. */
const struct tp_share_choice *tp_recipe_choice(const struct tp_recipe *recipe, size_t s, size_t f);
/* Its name with an asterisk in the place of the layer's number. */
void tp_recipe_kind(const struct tp_weight_set *set, char *text, size_t size);

/* The file that `convert --recipe` takes, a comment at each rule; into the empty text. */
enum tp_code tp_recipe_text(const struct tp_recipe_report *report, struct tp_text *text,
                            struct tp_err *err);
/* On stdout; the exit status. */
int tp_recipe_print(const struct tp_recipe_report *report, bool json);
/* TP_E_MEMORY. */
enum tp_code tp_recipe_page(const struct tp_recipe_report *report, FILE *out, struct tp_err *err);

#endif
