/* SPDX-License-Identifier: Apache-2.0 */
#include "gradloom_steps.h"

#include "gradloom_sum.h"

#define MAGIC 0x54534c47u /* "GLST" */
#define LAYOUT 1u
#define MAX_STEPS 100000u
/* Bits of an activation and of a weight, those that a weight has less, an adapter's word more, and a dot's; and bits to
 * spare. */
#define ACTIVATION 24
#define WEIGHT 18
#define DROP 6
#define SPARE 14
#define GUARD 8
#define HEADROOM 3
#define SHIFT 63

/* Words of the table; offsets count bytes from its first. */
struct table {
    uint32_t magic, layout, bytes, sum;
    uint32_t steps, columns, rows;
    uint32_t adapters, adapter;
    uint32_t state; /* offset in the window */
    uint32_t programs, program;
};

struct program {
    uint32_t values, value;
};

struct value {
    uint32_t word, mask, fields, field, commands, command;
};

struct field {
    uint32_t shape; /* position[7:0] width[15:8] signed[16] */
    int32_t constant;
    uint32_t terms; /* two of 16 bits: minus[15], variable + 1 [14:0]; 0: none */
};

enum { A, B, H, DH, GA, GB, TENSORS };

struct adapter {
    uint32_t place[TENSORS][2]; /* offset in the window, words */
    int32_t x, w, dy;           /* fraction bits that stay */
    uint32_t reserved;
};

struct state {
    int32_t frac[TENSORS];
    int32_t reach[TENSORS - H];
    int32_t reserved[2];
};

static const char apart[] = "the exponents of an adapter lie too far apart";

static volatile const struct table *table_of(const gl_steps *steps)
{
    return (volatile const struct table *)(steps->window + steps->table / 4);
}

static volatile const uint32_t *in_table(const gl_steps *steps, uint32_t offset)
{
    return steps->window + (steps->table + offset) / 4;
}

static volatile struct state *state_of(const gl_steps *steps)
{
    return (volatile struct state *)(steps->window + table_of(steps)->state / 4);
}

/* Whether `count` things of `words` words at `offset` lie in the first `size` bytes. */
static int inside(uint32_t offset, uint32_t count, uint32_t words, uint32_t size)
{
    return offset % 4 == 0 && offset <= size && count <= (size - offset) / 4 / words;
}

static int good_field(volatile const struct field *field, uint32_t variables)
{
    uint32_t shape = field->shape, position = shape & 255, width = shape >> 8 & 255, terms = field->terms;

    return shape >> 17 == 0 && width >= 1 && width <= 32 && position <= 32 - width && (terms & 0x7fff) <= variables &&
           (terms >> 16 & 0x7fff) <= variables;
}

static const char *check_program(const gl_steps *steps, uint32_t number, uint32_t variables)
{
    static const char outside[] = "a patch is outside the step table";
    volatile const struct table *table = table_of(steps);
    volatile const struct program *program =
        (volatile const struct program *)in_table(steps, table->program) + number;
    volatile const struct value *value = (volatile const struct value *)in_table(steps, program->value);
    volatile const uint32_t *command;
    uint32_t bytes = table->bytes, i, k;

    if (!inside(program->value, program->values, sizeof *value / 4, bytes))
        return outside;
    for (i = 0; i < program->values; i++, value++) {
        if (value->word > 7 || value->commands == 0 ||
            !inside(value->field, value->fields, sizeof(struct field) / 4, bytes) ||
            !inside(value->command, value->commands, 1, bytes))
            return outside;
        for (k = 0; k < value->fields; k++)
            if (!good_field((volatile const struct field *)in_table(steps, value->field) + k, variables))
                return "a patch is no field of a command";
        command = in_table(steps, value->command);
        for (k = 0; k < value->commands; k++)
            if (command[k] >= steps->commands[number])
                return "a patch is outside its program";
    }
    return NULL;
}

static const char *check_adapter(const gl_steps *steps, uint32_t number)
{
    volatile const struct adapter *adapter =
        (volatile const struct adapter *)in_table(steps, table_of(steps)->adapter) + number;
    uint32_t i;

    for (i = A; i < TENSORS; i++)
        if (!inside(adapter->place[i][0], adapter->place[i][1], 1, steps->window_bytes))
            return "an adapter of the step table is outside the window";
    return NULL;
}

const char *gl_steps_check(const gl_steps *steps)
{
    volatile const struct table *table = table_of(steps);
    const char *why = NULL;
    uint32_t bytes, i;

    if (!inside(steps->table, 1, sizeof *table / 4, steps->window_bytes))
        return "the step table is outside the window";
    bytes = table->bytes;
    if (table->magic != MAGIC || table->layout != LAYOUT)
        return "the step table is of another layout";
    if (bytes % 4 || bytes < sizeof *table || !inside(steps->table, bytes / 4, 1, steps->window_bytes))
        return "the step table is outside the window";
    if (gl_sum_words(&table->steps, (bytes - (uint32_t)offsetof(struct table, steps)) / 4) != table->sum)
        return "the step table's sum is wrong";
    if (table->programs != steps->programs || !inside(table->program, table->programs, 2, bytes))
        return "the step table has another number of programs";
    if (table->steps == 0 || table->steps > MAX_STEPS || table->columns == 0 || table->columns > 0x4000 ||
        !inside(table->rows, table->steps, table->columns, bytes) || table->adapters > 0x400 ||
        !inside(table->adapter, table->adapters, sizeof(struct adapter) / 4, bytes) ||
        !inside(table->state, table->adapters, sizeof(struct state) / 4, steps->window_bytes))
        return "the step table has another number of rows or adapters";
    for (i = 0; i < table->steps; i++)
        if (*in_table(steps, table->rows + 4 * i * table->columns) >= steps->programs)
            return "a step has no program";
    for (i = 0; i < table->adapters && !why; i++)
        why = check_adapter(steps, i);
    for (i = 0; i < steps->programs && !why; i++)
        why = check_program(steps, i, table->columns + table->adapters * (uint32_t)(sizeof(struct state) / 4));
    return why;
}

uint32_t gl_steps_count(const gl_steps *steps)
{
    return table_of(steps)->steps;
}

uint32_t gl_steps_columns(const gl_steps *steps)
{
    return table_of(steps)->columns;
}

static int32_t variable(uint32_t term, volatile const uint32_t *row, uint32_t columns, volatile const uint32_t *state)
{
    uint32_t index = (term & 0x7fff) - 1, value;

    if (term == 0)
        return 0;
    value = index < columns ? row[index] : state[index - columns];
    return (int32_t)(term & 0x8000 ? 0u - value : value);
}

/* The bits of a value; 0 if a field cannot hold what it should. */
static int bits_of(const gl_steps *steps, volatile const struct value *value, volatile const uint32_t *row,
                   volatile const uint32_t *state, uint32_t *bits)
{
    volatile const struct field *field = (volatile const struct field *)in_table(steps, value->field);
    uint32_t columns = table_of(steps)->columns, i, count = value->fields, shape, width, terms, word = 0;
    int32_t content;

    for (i = 0; i < count; i++, field++) {
        shape = field->shape;
        width = shape >> 8 & 255;
        terms = field->terms;
        content = (int32_t)((uint32_t)field->constant + (uint32_t)variable(terms & 0xffff, row, columns, state) +
                            (uint32_t)variable(terms >> 16, row, columns, state));
        if (width < 32) {
            if (shape >> 16 ? content < -(1 << (width - 1)) || content >= 1 << (width - 1)
                            : content < 0 || (uint32_t)content >= 1u << width)
                return 0;
            content &= (1 << width) - 1;
        }
        word |= (uint32_t)content << (shape & 255);
    }
    *bits = word;
    return 1;
}

/* A step's program: that of its row, but program 0 for as many steps after the first as the table begins with it. */
static uint32_t program_of(const gl_steps *steps, uint32_t step)
{
    volatile const struct table *table = table_of(steps);
    uint32_t stride = 4 * table->columns, own = *in_table(steps, table->rows + step * stride), row;

    for (row = 0; own && row <= step - steps->first; row++)
        if (*in_table(steps, table->rows + row * stride))
            return own;
    return 0;
}

const char *gl_steps_patch(const gl_steps *steps, uint32_t program, volatile const uint32_t *row,
                           volatile const uint32_t *state)
{
    volatile const struct program *own =
        (volatile const struct program *)in_table(steps, table_of(steps)->program) + program;
    volatile const struct value *value = (volatile const struct value *)in_table(steps, own->value);
    volatile const uint32_t *command;
    volatile uint32_t *code, *word;
    uint32_t i, k, mask, bits, values = own->values;

    for (i = 0; i < values; i++, value++) {
        code = steps->window + steps->offset[program] / 4 + value->word;
        command = in_table(steps, value->command);
        mask = value->mask;
        if (!bits_of(steps, value, row, state, &bits))
            return apart;
        /* The first command is patched last: if it has the word, so have all. */
        if ((code[8 * command[0]] & mask) == bits)
            continue;
        for (k = value->commands; k-- > 0;) {
            word = code + 8 * command[k];
            *word = (*word & ~mask) | bits;
        }
    }
    return NULL;
}

const char *gl_steps_prepare(const gl_steps *steps, uint32_t step, uint32_t *program)
{
    volatile const struct table *table = table_of(steps);

    *program = program_of(steps, step);
    return gl_steps_patch(steps, *program, in_table(steps, table->rows + 4 * step * table->columns),
                          (volatile const uint32_t *)state_of(steps));
}

/* Bits of the largest word without its sign. */
static int32_t length(const gl_steps *steps, volatile const uint32_t *place)
{
    volatile const uint32_t *word = steps->window + place[0] / 4, *end = word + place[1];
    uint32_t found = 0, each;
    int32_t bits = 0;

    while (word != end) {
        each = *word++;
        found |= each & 0x80000000u ? ~each : each;
    }
    for (; found; found >>= 1)
        bits++;
    return bits;
}

/* A word times 2^-shift, to the nearest, a tie to the even one. */
static uint32_t rounded(uint32_t word, uint32_t shift)
{
    uint32_t negative = word & 0x80000000u, size = negative ? 0u - word : word, rest, half = 1u << (shift - 1);

    rest = size & ((half << 1) - 1);
    size = size >> (shift - 1) >> 1;
    size += rest > half || (rest == half && (size & 1));
    return negative ? 0u - size : size;
}

/* Gives words `bits` more fraction bits, or fewer; -1 at the least. */
static void rebase(const gl_steps *steps, volatile const uint32_t *place, int32_t bits)
{
    volatile uint32_t *word = steps->window + place[0] / 4, *end = word + place[1];

    for (; word != end; word++)
        *word = bits > 0 ? *word << bits : rounded(*word, (uint32_t)-bits);
}

/* As many fraction bits as a reach leaves, within what shifts can do. */
static int choose(volatile struct state *state, int tensor, int32_t top, int32_t least)
{
    int32_t low = top - SHIFT > least ? top - SHIFT : least;
    int32_t frac = ACTIVATION - 1 - HEADROOM - state->reach[tensor - H];

    if (low > top)
        return 0;
    frac = frac < top ? frac : top;
    state->frac[tensor] = frac > low ? frac : low;
    return 1;
}

static int measure(const gl_steps *steps, volatile const struct adapter *adapter, volatile struct state *state)
{
    int32_t bits, wanted, x = adapter->x, w = adapter->w, dy = adapter->dy, top;
    int i;

    for (i = H; i < TENSORS; i++) {
        bits = length(steps, adapter->place[i]);
        if (bits == 0)
            continue;
        bits += (i == H || i == DH ? DROP : 0) - state->frac[i];
        wanted = state->reach[i - H] - 1;
        state->reach[i - H] = bits > wanted ? bits : wanted;
    }
    for (i = A; i <= B; i++) {
        bits = length(steps, adapter->place[i]);
        wanted = state->frac[i] + SPARE + WEIGHT - 2 - bits;
        /* Finer by two bits or more: words about a power of two are not moved to and fro. */
        if (bits && (wanted < state->frac[i] || wanted > state->frac[i] + 1)) {
            rebase(steps, adapter->place[i], wanted - state->frac[i]);
            state->frac[i] = wanted;
        }
    }
    if (!choose(state, H, x + state->frac[A], w + x - state->frac[B] - GUARD) ||
        !choose(state, DH, dy + state->frac[B], w + dy - state->frac[A] - GUARD))
        return 0;
    top = x + state->frac[DH] - DROP;
    choose(state, GA, top, top - SHIFT);
    top = dy + state->frac[H] - DROP;
    choose(state, GB, top, top - SHIFT);
    return 1;
}

const char *gl_steps_measure(const gl_steps *steps, uint32_t done)
{
    volatile const struct table *table = table_of(steps);
    uint32_t i, interval = 1, rest;

    /* After each of the first 7 steps, then at intervals of a quarter of those made at most, up to 16. */
    for (rest = done >> 3; rest && interval < 16; rest >>= 1)
        interval <<= 1;
    if (done & (interval - 1))
        return NULL;
    for (i = 0; i < table->adapters; i++)
        if (!measure(steps, (volatile const struct adapter *)in_table(steps, table->adapter) + i, state_of(steps) + i))
            return apart;
    return NULL;
}
