/* How names begin and end. */
#ifndef TP_BASE_SUFFIX_H
#define TP_BASE_SUFFIX_H

#include <stdbool.h>
#include <string.h>

/* Whether `text` ends in `end`, with something in front of it. */
static inline bool tp_ends_with(const char *text, const char *end)
{
    size_t size = strlen(text), end_size = strlen(end);
    return size > end_size && memcmp(text + size - end_size, end, end_size) == 0;
}

static inline bool tp_begins_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* The place of the word in a list of so many, which may end in NULL before; -1: it is none of them,
 * or NULL itself. */
static inline int tp_word_of(const char *word, const char *const list[], size_t count)
{
    for (size_t i = 0; word && i < count && list[i]; i++)
        if (strcmp(word, list[i]) == 0)
            return (int)i;
    return -1;
}
#define TP_COUNT(list) (sizeof(list) / sizeof(list)[0])

#endif
