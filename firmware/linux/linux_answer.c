/* SPDX-License-Identifier: Apache-2.0
 * firmware/jobs/answering.py does the same, and says how programs of several tokens follow each other. */
#define _GNU_SOURCE
#include "linux_answer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "gradloom_steps.h"
#include "linux_board.h"
#include "linux_plan.h"

#define COMMAND_BYTES 32u
/* Words of a row of a tile, and bytes. */
#define TILE 64u
#define ROW (4 * TILE)
#define MOST_POSITIONS (1u << 20)
/* Names and values of the plan's answers, and of a program. */
#define PLAN_LENGTH 22u
#define PROGRAM_LENGTH 16u
/* Tokens at most of what is found again. */
#define FOUND 3u

/* Columns of the tables. */
enum { PROGRAM, POSITION, PLACE, COLUMNS };

struct program {
    uint32_t position, count, offset, commands, input, logits;
    uint32_t angles; /* a value of the plan */
    gl_steps steps;  /* whose window has the program and its table */
    uint32_t *there; /* the program as the machine has it */
};

static job made;
static board place;
static uint32_t positions, rows, vocabulary, features, angle_words, names, tokens, ends, *last_of, programs;
static uint64_t embedding, angles;
static struct program *program;
static uint64_t clipped, cycles;

static void *room(size_t count, size_t size)
{
    void *found = calloc(count ? count : 1, size);

    if (!found)
        board_fail("answers", "no memory");
    return found;
}

/* ---- the plan */

static uint32_t value(uint32_t object, const char *name)
{
    return json_field(&made.plan, object, name);
}

static uint32_t number(uint32_t object, const char *name, uint64_t low, uint64_t high)
{
    return (uint32_t)plan_number(&made, value(object, name), low, high, name);
}

static uint64_t data_place(uint32_t at, uint64_t length, const char *name)
{
    if (length > made.data_bytes)
        plan_refuse("%s: is longer than the data", name);
    return plan_number(&made, at, 0, made.data_bytes - length, name);
}

static uint32_t window_place(uint32_t at, uint64_t length, const char *name)
{
    if (length > made.window)
        plan_refuse("%s: is longer than the window", name);
    return (uint32_t)plan_number(&made, at, 0, made.window - length, name);
}

static uint32_t list(uint32_t object, const char *name, uint32_t low)
{
    uint32_t found = value(object, name);

    if (found == JSON_NONE || made.plan.values[found].kind != '[' || json_length(&made.plan, found) < low)
        plan_refuse("answers: %s: must be a list of %" PRIu32 " or more", name, low);
    return found;
}

static uint32_t *read_tokens(const char *name, uint32_t low, uint32_t *count)
{
    uint32_t at = list(made.answers, name, low), each, *found;

    *count = json_length(&made.plan, at);
    found = room(*count, sizeof *found);
    for (each = 0; each < *count; each++)
        found[each] = (uint32_t)plan_number(&made, at + 1 + each, 0, vocabulary - 1, name);
    return found;
}

static uint64_t tiles(uint64_t words)
{
    return (words + TILE - 1) / TILE;
}

static void read_program(struct program *to, uint32_t at)
{
    uint32_t pair = list(at, "program", 2), table = list(at, "table", 2), each;
    uint64_t code, from, bytes, size;
    const char *why;

    if (json_length(&made.plan, at) != PROGRAM_LENGTH || json_length(&made.plan, pair) != 2 || json_length(&made.plan, table) != 2)
        plan_refuse("answers.programs: must have position, count, program, code, table, input, angles and logits");
    to->position = number(at, "position", 0, positions - 1);
    to->count = number(at, "count", 1, rows);
    to->commands = (uint32_t)plan_number(&made, pair + 2, 1, GRADLOOM__PROGRAM_COMMANDS__VALUE_bm, "program.commands");
    size = (uint64_t)to->commands * COMMAND_BYTES;
    to->offset = window_place(pair + 1, size, "program.offset");
    to->input = window_place(value(at, "input"), 4 * (uint64_t)to->count * features, "input");
    to->logits = window_place(value(at, "logits"), ROW * tiles(vocabulary) * to->count, "logits");
    to->angles = list(at, "angles", 0);
    for (each = 0; each < json_length(&made.plan, to->angles); each++)
        window_place(to->angles + 1 + each, 4 * (uint64_t)to->count * angle_words, "angles");
    code = data_place(value(at, "code"), size, "code");
    bytes = plan_number(&made, table + 2, 1, UINT32_MAX / 2 - size, "table.length");
    from = data_place(table + 1, bytes, "table.at");

    to->steps = (gl_steps){.window = room((size_t)(size + bytes + 3) / 4, 4),
                           .window_bytes = (uint32_t)(size + bytes) & ~3u,
                           .table = (uint32_t)size,
                           .programs = 1,
                           .commands = {to->commands}};
    plan_data(&made, code, (void *)(uintptr_t)to->steps.window, (size_t)size);
    plan_data(&made, from, (uint8_t *)(uintptr_t)to->steps.window + size, (size_t)bytes);
    why = gl_steps_check(&to->steps);
    if (!why && gl_steps_columns(&to->steps) != COLUMNS)
        why = "the step table has other columns";
    if (why)
        board_fail("data.bin", why);
    to->there = room((size_t)size / 4, 4);
    memcpy(to->there, (void *)(uintptr_t)to->steps.window, (size_t)size);
}

/* The program of the most tokens from a position on that has room there, and has not more than `most`; NULL: none. */
static struct program *program_at(uint32_t position, uint32_t most)
{
    uint32_t start = position / rows * rows, end = positions - start < rows ? positions : start + rows, i;
    struct program *found = NULL;

    for (i = 0; i < programs; i++)
        if (program[i].position == start && program[i].count <= end - position && program[i].count <= most &&
            (!found || program[i].count > found->count))
            found = &program[i];
    return found;
}

/* Reads and checks all that the plan has of answers. */
static void read_answers(void)
{
    uint32_t all, at, i;

    if (made.answers == JSON_NONE)
        board_fail("job.json", "has no answers, but a fine-tune: run it by gradloom_run job");
    if (json_length(&made.plan, made.answers) != PLAN_LENGTH)
        plan_refuse("answers: has other fields");
    for (at = made.stages + 1; at < made.plan.values[made.stages].next; at = made.plan.values[at].next)
        if (made.plan.values[value(at, "program")].kind != 't')
            plan_refuse("stages: must have no program beside answers");
    positions = number(made.answers, "positions", 1, MOST_POSITIONS);
    rows = number(made.answers, "rows", 1, TILE);
    vocabulary = number(made.answers, "vocabulary", 1, 1u << 20);
    features = number(made.answers, "features", 1, 1u << 16);
    angle_words = number(made.answers, "angle_words", 1, 1u << 16);
    tokens = number(made.answers, "tokens", 1, MOST_POSITIONS);
    if (features % TILE || angle_words % TILE)
        plan_refuse("answers: features and angle_words: must be multiples of %u", TILE);
    last_of = read_tokens("ends", 0, &ends);
    embedding = data_place(value(made.answers, "embedding"), 4 * (uint64_t)features * vocabulary, "answers.embedding");
    all = list(made.answers, "programs", 1);
    programs = json_length(&made.plan, all);
    program = room(programs, sizeof *program);
    for (at = all + 1, i = 0; i < programs; at = made.plan.values[at].next, i++) {
        if (made.plan.values[at].kind != '{')
            plan_refuse("answers.programs: must be objects");
        read_program(&program[i], at);
        if (json_length(&made.plan, program[i].angles) != json_length(&made.plan, program[0].angles))
            plan_refuse("answers.programs: must have angles alike");
    }
    names = json_length(&made.plan, program[0].angles);
    angles = data_place(value(made.answers, "angles"), 4 * (uint64_t)positions * names * angle_words, "answers.angles");
    for (at = 0; at < positions; at += rows)
        if (!program_at(at, 1))
            plan_refuse("answers.programs: must have one of one token for each tile of the cache");
}

/* ---- a program */

/* Writes the commands that the machine does not have yet. */
static void write_changed(struct program *of)
{
    const uint32_t *now = (const uint32_t *)(uintptr_t)of->steps.window;
    size_t at, first, words = COMMAND_BYTES / 4, end = of->commands * words;

    for (at = 0; at < end; at += words) {
        for (first = at; at < end && memcmp(now + at, of->there + at, COMMAND_BYTES); at += words)
            continue;
        if (at == first)
            continue;
        board_store(&place, of->offset + 4 * first, now + first, 4 * (at - first));
        memcpy(of->there + first, now + first, 4 * (at - first));
    }
}

/* Writes rows of words, whose places in the data are given, by tile, then row. */
static void write_rows(uint32_t offset, const uint64_t *from, uint32_t count, uint32_t words)
{
    uint8_t *all = room((size_t)count * words, 4), *row = room(words, 4);
    uint32_t each, tile;

    for (each = 0; each < count; each++) {
        plan_data(&made, from[each], row, 4 * (size_t)words);
        for (tile = 0; tile < words / TILE; tile++)
            memcpy(all + ROW * ((size_t)tile * count + each), row + ROW * (size_t)tile, ROW);
    }
    board_store(&place, offset, all, 4 * (size_t)count * words);
    free(all);
    free(row);
}

/* Runs a program of tokens from a position on. GL_OK, or GL_FAILED with a line that tells it. */
static int run(struct program *of, uint32_t position, const uint32_t *token, char *line, size_t size)
{
    uint32_t row[COLUMNS] = {[POSITION] = position, [PLACE] = ROW * (position - of->position)}, each, name;
    uint64_t from[TILE];
    const char *why = gl_steps_patch(&of->steps, PROGRAM, row, row);
    gl_counters counters;
    gl_health health;
    gl_error error;

    if (why)
        board_fail("program", why);
    write_changed(of);
    for (each = 0; each < of->count; each++)
        from[each] = embedding + 4 * (uint64_t)features * token[each];
    write_rows(of->input, from, of->count, features);
    for (name = 0; name < names; name++) {
        for (each = 0; each < of->count; each++)
            from[each] = angles + 4 * (uint64_t)angle_words * ((uint64_t)names * (position + each) + name);
        write_rows((uint32_t)plan_number(&made, of->angles + 1 + name, 0, UINT32_MAX, "angles"), from, of->count,
                   angle_words);
    }
    if (board_run(&place, of->offset, of->commands, &error, line, size) != GL_OK)
        return GL_FAILED;
    gl_get_counters(&place.device, &counters);
    gl_get_health(&place.device, &health);
    cycles += counters.cycles;
    clipped += health.saturated;
    return GL_OK;
}

/* The token with the largest logit behind a row of a program; of equals the lowest. */
static uint32_t likeliest(const struct program *of, uint32_t row)
{
    uint32_t tile, each, best = 0;
    int32_t logit[TILE], most = INT32_MIN;

    for (tile = 0; tile < tiles(vocabulary); tile++) {
        board_fetch(&place, of->logits + ROW * ((uint64_t)tile * of->count + row), logit, ROW);
        for (each = 0; each < TILE && tile * TILE + each < vocabulary; each++)
            if (logit[each] > most) {
                most = logit[each];
                best = tile * TILE + each;
            }
    }
    return best;
}

/* What may stand behind a text: what stood behind its last tokens where the most of them stood before, last. How many. */
static uint32_t guess(const uint32_t *text, uint32_t length, uint32_t count, uint32_t *found)
{
    uint32_t size = length - 1 < FOUND ? length - 1 : FOUND, start, i;

    for (; size; size--)
        for (start = length - size; start-- > 0;) {
            if (memcmp(text + start, text + length - size, 4 * size))
                continue;
            for (i = 0; i < count; i++)
                found[i] = start + size + i < length ? text[start + size + i] : found[start + size + i - length];
            return count;
        }
    return 0;
}

/* ---- an answer */

static int is_last(uint32_t token)
{
    uint32_t i;

    for (i = 0; i < ends; i++)
        if (last_of[i] == token)
            return 1;
    return 0;
}

/* Prints at most `wanted` tokens behind the `length` of a text. Exit code. */
static int answer(uint32_t *text, uint32_t length, uint32_t wanted)
{
    uint32_t prompt = length, position = 0, runs = 0, known, now, each, found, next[TILE];
    struct program *of;
    char line[400];
    int ended = 0;

    while (!ended) {
        of = program_at(position, TILE);
        known = length - position < of->count ? length - position : of->count;
        memcpy(next, text + position, 4 * known);
        if (known < of->count) {
            /* More than the answer takes is no use. */
            now = prompt + wanted - 1 - position;
            known += guess(text, length, (now < of->count ? now : of->count) - known, next + known);
        }
        if (known == 1)
            of = program_at(position, 1);
        /* What fills a program counts for nothing, and its rows of the cache are written again. */
        for (each = known; each < of->count; each++)
            next[each] = next[known - 1];
        if (run(of, position, next, line, sizeof line) != GL_OK) {
            printf("\n");
            fflush(stdout);
            fprintf(stderr, "gradloom: program stopped: %s\n", line);
            return 1;
        }
        runs++;
        for (each = 0; each < known && !ended; each++) {
            if (++position < length)
                continue;
            found = likeliest(of, each);
            ended = is_last(found);
            if (ended)
                break;
            text[length++] = found;
            printf("%" PRIu32 " ", found);
            fflush(stdout);
            ended = length == prompt + wanted;
            if (each + 1 < known && next[each + 1] != found)
                break;
        }
    }
    printf("\n");
    fflush(stdout);
    fprintf(stderr, "%" PRIu32 " tokens by %" PRIu32 " programs, %" PRIu64 " cycles, %" PRIu64 " words clipped\n",
            length - prompt, runs, cycles, clipped);
    return 0;
}

static void stop(const char *line)
{
    (void)line;
    board_stop(&place);
}

int answer_run(const char *at, int count, char **words)
{
    const char *folder;
    uint64_t asked = 0;
    uint32_t *text, *usual, length, i;
    char why[200];

    if (count > 1 && !strcmp(words[0], "--tokens")) {
        asked = board_number(words[1], 1, MOST_POSITIONS, "tokens");
        count -= 2;
        words += 2;
    }
    if (!count)
        board_fail("answer", "needs the folder of a model");
    folder = *words++;
    count--;
    board_lock(at);
    plan_read(&made, folder);
    read_answers();
    tokens = asked ? (uint32_t)asked : tokens;
    usual = read_tokens("prompt", 1, &length);
    length = count ? (uint32_t)count : length;
    if ((uint64_t)length + tokens - 1 > positions) {
        snprintf(why, sizeof why,
                 "must be at least 1, and with the prompt's %" PRIu32 " at most %" PRIu32 ", as many as the folder has "
                 "programs for: ask for fewer by --tokens, or write it with more",
                 length, positions + 1);
        snprintf(made.name, sizeof made.name, "tokens=%" PRIu32, tokens);
        board_fail(made.name, why);
    }
    text = room(length + tokens, sizeof *text);
    for (i = 0; i < length; i++)
        text[i] = count ? (uint32_t)board_number(words[i], 0, vocabulary - 1, "token") : usual[i];

    board_on_fault = stop;
    plan_begin(&made, &place, at);
    for (i = made.stages + 1; i < made.plan.values[made.stages].next; i = made.plan.values[i].next)
        plan_write(&made, &place, value(i, "writes"));
    for (i = 0; i < programs; i++)
        board_store(&place, program[i].offset, program[i].there, (size_t)program[i].commands * COMMAND_BYTES);
    return answer(text, length, tokens);
}
