/* Items of a list or an object, two levels deep. */
#include "pack/text/json_items.h"

enum tp_code tp_items_next(struct tp_items *items, char opening, struct tp_err *err)
{
    enum tp_code code = tp_text_part(items->text, err);
    return code ? code : tp_text_add(items->text, (char[]){items->count++ ? ',' : opening, '\n',
                                                           ' ', ' '}, 4, err);
}

enum tp_code tp_items_end(const struct tp_items *items, const char *empty, struct tp_err *err)
{
    return items->count ? tp_text_add(items->text, (char[]){'\n', ' ', empty[1]}, 3, err)
                        : tp_text_add_word(items->text, empty, err);
}
