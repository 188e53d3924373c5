/* SPDX-License-Identifier: Apache-2.0 */
#include "linux_json.h"

#include <stdlib.h>
#include <string.h>

#define DEEPEST 32

typedef struct reader {
    json *made;
    const char *text;
    uint32_t at, length;
} reader;

static char look(reader *from)
{
    while (from->at < from->length && strchr(" \t\r\n", from->text[from->at]))
        from->at++;
    return from->at < from->length ? from->text[from->at] : '\0';
}

static uint32_t add(reader *from, char kind, uint32_t start)
{
    json *made = from->made;
    json_value *more;

    if (made->count == made->room) {
        made->room = made->room ? 2 * made->room : 256;
        more = realloc(made->values, made->room * sizeof *more);
        if (!more)
            return JSON_NONE;
        made->values = more;
    }
    made->values[made->count] = (json_value){.kind = kind, .start = start, .end = start, .next = 0};
    return made->count++;
}

static int string(reader *from)
{
    uint32_t at = add(from, '"', ++from->at);

    if (at == JSON_NONE)
        return -1;
    while (from->at < from->length && from->text[from->at] != '"')
        from->at += from->text[from->at] == '\\' ? 2 : 1;
    if (from->at >= from->length)
        return -1;
    from->made->values[at].end = from->at++;
    from->made->values[at].next = from->made->count;
    return 0;
}

/* A number, or a word. */
static int plain(reader *from)
{
    char first = from->text[from->at];
    uint32_t at = add(from, (first >= '0' && first <= '9') || first == '-' ? '0' : 't', from->at);
    static const char *const words[] = {"true", "false", "null"};
    size_t length, word;

    if (at == JSON_NONE)
        return -1;
    while (from->at < from->length && !strchr(",]}: \t\r\n", from->text[from->at]))
        from->at++;
    from->made->values[at].end = from->at;
    from->made->values[at].next = from->made->count;
    length = from->at - from->made->values[at].start;
    if (from->made->values[at].kind == '0')
        return 0;
    for (word = 0; word < 3; word++)
        if (length == strlen(words[word]) && !memcmp(from->text + from->made->values[at].start, words[word], length))
            return 0;
    return -1;
}

static int value(reader *from, int depth)
{
    char first = look(from), last = first == '{' ? '}' : ']';
    uint32_t at;

    if (first == '"')
        return string(from);
    if (first != '{' && first != '[')
        return first ? plain(from) : -1;
    if (depth > DEEPEST || (at = add(from, first, from->at++)) == JSON_NONE)
        return -1;
    while (look(from) != last) {
        if (first == '{') {
            if (look(from) != '"' || string(from) || look(from) != ':')
                return -1;
            from->at++;
        }
        if (value(from, depth + 1))
            return -1;
        if (look(from) == ',')
            from->at++;
        else if (look(from) != last)
            return -1;
    }
    from->made->values[at].end = ++from->at;
    from->made->values[at].next = from->made->count;
    return 0;
}

int json_parse(json *made, const char *text, size_t length)
{
    reader from = {.made = made, .text = text, .length = (uint32_t)length};

    *made = (json){.text = text};
    if (length >= JSON_NONE || value(&from, 0))
        return -1;
    return look(&from) ? -1 : 0;
}

void json_free(json *made)
{
    free(made->values);
    made->values = NULL;
}

static int is(const json *made, uint32_t at, const char *name)
{
    const json_value *value = &made->values[at];

    return value->end - value->start == strlen(name) && !memcmp(made->text + value->start, name, strlen(name));
}

uint32_t json_field(const json *made, uint32_t object, const char *name)
{
    uint32_t at;

    if (object == JSON_NONE || made->values[object].kind != '{')
        return JSON_NONE;
    for (at = object + 1; at < made->values[object].next; at = made->values[at + 1].next)
        if (is(made, at, name))
            return at + 1;
    return JSON_NONE;
}

uint32_t json_length(const json *made, uint32_t at)
{
    uint32_t each, count = 0;

    for (each = at + 1; each < made->values[at].next; each = made->values[each].next)
        count++;
    return count;
}

int json_number(const json *made, uint32_t at, uint64_t low, uint64_t high, uint64_t *number)
{
    const json_value *value;
    uint64_t found = 0;
    uint32_t each;

    if (at == JSON_NONE || made->values[at].kind != '0')
        return 0;
    value = &made->values[at];
    for (each = value->start; each < value->end; each++) {
        if (made->text[each] < '0' || made->text[each] > '9' || found > (UINT64_MAX - 9) / 10)
            return 0;
        found = 10 * found + (uint64_t)(made->text[each] - '0');
    }
    *number = found;
    return found >= low && found <= high;
}

int json_text(const json *made, uint32_t at, char *text, size_t size)
{
    size_t length;

    if (at == JSON_NONE || made->values[at].kind != '"')
        return 0;
    length = made->values[at].end - made->values[at].start;
    if (length >= size || memchr(made->text + made->values[at].start, '\\', length))
        return 0;
    memcpy(text, made->text + made->values[at].start, length);
    text[length] = '\0';
    return 1;
}
