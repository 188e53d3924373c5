/* SPDX-License-Identifier: Apache-2.0 */
#include "soc_infer.h"

#include "soc_line.h"
#include "soc_memory.h"
#include "soc_part.h"

#if defined GL_BOARD_CARD && defined GL_BOARD_LISTEN

#define MAGIC 0x4e414c47u /* "GLAN" */
#define MOST 64u
/* Features and rows of a tile. */
#define EDGE 64u

/* The description; src/gradloom/systems/text/card/answers.py writes it. */
struct answers {
    struct part part;
    uint32_t positions; /* of prompt and answer, at most */
    uint32_t cache, cached; /* of keys and values, and their bytes */
    uint32_t angles; /* bytes from one position's angles to the next */
    uint32_t input, features; /* the token's row */
    uint32_t embedding, vocabulary, shift; /* words of 16 bits, tiles of 64 rows and 64 features; bits that a word has less */
    uint32_t logits;
    uint32_t state, words;  /* offset of the exponents among a resident adapter's words, and bytes of these */
    uint32_t adapter[INFER_ADAPTERS]; /* offsets */
};

/* Columns of the table. */
enum { PROGRAM, POSITION, ROW, ANGLES, ADAPTER, COLUMNS };

static const gl_device *device;
static volatile const struct job *job;
static volatile const struct answers *answers;
static gl_steps steps;

/* Of the prompt: its tokens, then those of the answer; how many are wanted, the one that ends it, the adapter, and the
 * number that whoever asks has given it. */
static uint32_t token[MOST], prompt, made, wanted, last, chosen, named;
/* Of its tokens: the most cycles that one has waited for the accelerator, and that one took from its start to its end. */
static uint32_t waited, took;
/* The position under way; whether a token is, or a prompt is not answered yet. */
static uint32_t position;
static int runs, open;

static volatile uint32_t *at(uint32_t offset)
{
    return in_window(job, offset);
}

/* Whether all that the description names lies in the window. */
static int holds(void)
{
    uint32_t window = job->window_bytes, vocabulary = answers->vocabulary, features = answers->features, i;

    for (i = 0; i < INFER_ADAPTERS; i++)
        if (!inside(answers->adapter[i], answers->words, window))
            return 0;
    return inside(answers->input, 4 * features, window) && inside(answers->logits, 4 * vocabulary, window) &&
           inside(answers->cache, answers->cached, window) && features % EDGE == 0 && answers->shift <= 31 &&
           inside(answers->embedding, 2 * features * ((vocabulary + EDGE - 1) & ~(EDGE - 1)), window) &&
           answers->words % 4 == 0 && answers->state <= answers->words && answers->words <= job->adapter_bytes &&
           answers->positions <= MOST;
}

static const char *refuse(void)
{
    switch (part_open(job, job->answers, MAGIC, sizeof *answers, &steps)) {
    case PART_LAYOUT:
        return "the description of prompts is of another layout";
    case PART_SUM:
        return "the sum of the description of prompts is wrong";
    case PART_GOOD:
        if (holds())
            return gl_steps_check(&steps);
        break;
    case PART_OUTSIDE:
        break;
    }
    return "the description of prompts is outside the window";
}

static void clear(uint32_t offset, uint32_t bytes)
{
    volatile uint32_t *word = at(offset), *end = word + bytes / 4;

    while (word != end)
        *word++ = 0;
}

const char *infer_open(const gl_device *machine, volatile const struct job *now)
{
    const char *why;

    open = runs = 0;
    answers = NULL;
    device = machine;
    job = now;
    if (job->answers == 0)
        return NULL;
    answers = (volatile const struct answers *)at(job->answers);
    why = refuse();
    if (!why && gl_steps_columns(&steps) != COLUMNS)
        why = "the table of prompts has other columns";
    if (why) {
        answers = NULL;
        return why;
    }
    /* Rows that no token has written yet are multiplied by zero, and must not saturate. */
    clear(answers->cache, answers->cached);
    infer_copy(INFER_START);
    infer_copy(INFER_BASE);
    clear(answers->adapter[INFER_BASE], answers->state);
    return NULL;
}

void infer_copy(uint32_t adapter)
{
    volatile uint32_t *to;
    volatile const uint32_t *from, *end;

    if (!answers)
        return;
    to = at(answers->adapter[adapter]);
    from = at(job->adapter);
    end = from + answers->words / 4;
    while (from != end)
        *to++ = *from++;
}

static void refused(const char *why)
{
    answer_word("refused");
    answer_number(named);
    answer_text(why);
    answer_end();
    open = 0;
}

static void tell(uint32_t number)
{
    answer_word("token");
    answer_number(named);
    answer_number(number);
    answer_number(token[prompt + number]);
    answer_end();
}

/* How far the answer is. */
static void tell_state(const char *word)
{
    answer_word(word);
    answer_number(named);
    answer_number(made);
    answer_number(waited);
    answer_number(took);
    answer_end();
}

/* The row of a token, which the program begins with. */
static void embed(uint32_t number)
{
    uint32_t features = answers->features, feature, shift = answers->shift;
    volatile const uint32_t *from;
    volatile uint32_t *to = at(answers->input);
    uint32_t pair;

    for (feature = 0; feature < features; feature += 2) {
        from = at(answers->embedding + 2 * ((number / EDGE * (features / EDGE) + feature / EDGE) * EDGE * EDGE +
                                            number % EDGE * EDGE + feature % EDGE));
        pair = *from;
        to[feature] = (uint32_t)(int32_t)(int16_t)(pair & 0xffff) << shift;
        to[feature + 1] = (uint32_t)(int32_t)(int16_t)(pair >> 16) << shift;
    }
}

static uint32_t likeliest(void)
{
    volatile const uint32_t *logit = at(answers->logits);
    uint32_t best = 0, i, count = answers->vocabulary;
    int32_t most = (int32_t)logit[0], each;

    for (i = 1; i < count; i++) {
        each = (int32_t)logit[i];
        if (each > most) {
            most = each;
            best = i;
        }
    }
    return best;
}

static void begin(void)
{
    uint32_t row[COLUMNS];
    const char *why;

    embed(token[position]);
    row[PROGRAM] = 0;
    row[POSITION] = position;
    row[ROW] = position * 4 * EDGE;
    row[ANGLES] = position * answers->angles;
    row[ADAPTER] = answers->adapter[chosen];
    why = gl_steps_patch(&steps, 0, row, at(row[ADAPTER] + answers->state));
    if (!why && gl_request(device, steps.offset[0], steps.commands[0]) != GL_OK)
        why = "the accelerator takes no request";
    runs = !why;
    if (why)
        refused(why);
}

static void prompted(const char *text)
{
    uint32_t count = 0, name, adapter, most, stop, i;

    if (!take_number(&text, &name) || !take_number(&text, &adapter) || !take_number(&text, &most) ||
        !take_number(&text, &stop))
        return;
    if (open) {
        /* The same again: our answer to it was lost. */
        tell_state(name == named ? "answers" : "busy");
        return;
    }
    while (*text && count < MOST)
        if (!take_number(&text, &token[count++]))
            return;
    prompt = count;
    named = name;
    made = position = waited = took = 0;
    for (i = 0; answers && i < count; i++)
        if (token[i] >= answers->vocabulary) {
            refused("a token is beyond the vocabulary");
            return;
        }
    if (!answers)
        refused("no job on the board answers prompts");
    else if (adapter >= INFER_ADAPTERS)
        refused("there is no such adapter");
    else if (count == 0 || most == 0 || most > MOST || *text || count + most > MOST ||
             count + most - 1 > answers->positions)
        refused("prompt and answer are longer than the context");
    else {
        wanted = most;
        last = stop;
        chosen = adapter;
        open = 1;
        tell_state("answers");
    }
}

/* What was answered, again. */
static void again(const char *text)
{
    uint32_t name, first;

    if (!take_number(&text, &name) || !take_number(&text, &first) || *text || name != named)
        return;
    for (; first < made; first++)
        tell(first);
    tell_state(open ? "answers" : "answered");
}

void infer_request(const char *text)
{
    if (take_word(&text, "ask"))
        prompted(text);
    else if (take_word(&text, "again"))
        again(text);
}

void infer_step(void)
{
    uint32_t waits, all;
    int status;

    if (!runs) {
        if (open)
            begin();
        return;
    }
    status = gl_poll_request(device);
    if (status == GL_RUNNING)
        return;
    runs = 0;
    if (status != GL_OK) {
        refused("the accelerator stopped");
        return;
    }
    gl_get_served(device, &waits, &all);
    waited = waits > waited ? waits : waited;
    took = all - waits > took ? all - waits : took;
    if (++position < prompt)
        return;
    token[prompt + made] = likeliest();
    tell(made++);
    if (made == wanted || token[prompt + made - 1] == last) {
        open = 0;
        tell_state("answered");
    }
}

void infer_close(void)
{
    while (runs)
        infer_step();
    if (open)
        refused("another job begins");
    answers = NULL;
}

#else

const char *infer_open(const gl_device *machine, volatile const struct job *now)
{
    (void)machine;
    return now->answers ? "this board has no line for prompts" : NULL;
}

void infer_copy(uint32_t adapter)
{
    (void)adapter;
}

void infer_step(void)
{
}

void infer_close(void)
{
}

#endif
