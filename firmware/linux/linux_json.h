/* SPDX-License-Identifier: Apache-2.0
 * Reads JSON: a text, and a row of its values, each before those in it.
 */
#ifndef GRADLOOM_LINUX_JSON_H
#define GRADLOOM_LINUX_JSON_H

#include <stddef.h>
#include <stdint.h>

#define JSON_NONE UINT32_MAX

typedef struct json_value {
    char kind;           /* { [ " 0 for a number, t for true, false and null */
    uint32_t start, end; /* of its text, without quotes */
    uint32_t next;       /* the value behind it and all in it */
} json_value;

typedef struct json {
    const char *text;
    json_value *values; /* of an object its names and values by turns */
    uint32_t count, room;
} json;

/* 0, or -1 where the text is no JSON, or memory ends. What is made before is freed by json_free. */
int json_parse(json *made, const char *text, size_t length);
void json_free(json *made);

/* The value of an object's name, or JSON_NONE. */
uint32_t json_field(const json *made, uint32_t object, const char *name);

/* How many values an array has, or names and values an object. */
uint32_t json_length(const json *made, uint32_t at);

/* 1 if a value is a whole number from `low` to `high`, which goes to `number`. */
int json_number(const json *made, uint32_t at, uint64_t low, uint64_t high, uint64_t *number);

/* 1 if a value is a text without escapes that fits into `size` bytes with a final 0. */
int json_text(const json *made, uint32_t at, char *text, size_t size);

#endif
