/* SPDX-License-Identifier: Apache-2.0
 * Bare-metal firmware of an accelerator that fine-tunes or answers on its own: the bitstream fills the memory with data
 * and programs, and this runs them after reset and tells a UART about them. The lines are kept and repeated for ever, since
 * nobody can listen as early as the first are sent. Between repeats it answers requests: the memory is read and written in
 * pieces, the kept lines are read, and what lies in memory then is run (docs/reference/formats.md).
 *
 * Data lie in blocks of 4 KB. A program works on one block: the window begins there, so that the same program serves
 * all blocks. What is common to all lies behind the last block, in everybody's window.
 */
#include "gradloom.h"
#include "gradloom_sum.h"
#include "soc_device.h"
#include "soc_line.h"
#include "soc_memory.h"
#include "soc_text.h"

#define MAGIC 0x4e544c47u /* "GLTN" */
#define BLOCK 4096u
#define MAX_STAGES 16u
/* Characters of the lines that are repeated; 40 epochs take 1.8 KB. */
#define KEPT 4096u
/* Cycles between repeats where no header says how many. */
#define PAUSE (1u << 27)
/* Bytes of the memory, and of a piece of it or of the lines that a request has. */
#define MEMORY_BYTES (1u << 17)
#define PIECE 512u

/* Words of the header, the first thing in memory, little-endian. Offsets count from the memory's first byte. */
struct stage {
    uint32_t name[2]; /* eight characters, padded with zeros */
    uint32_t program;
    uint32_t commands;
    uint32_t block; /* the first */
    uint32_t blocks;
    uint32_t runs;   /* over all blocks; more than one: each is told with its number */
    uint32_t told;   /* where in a block what is told of it lies; 0: nothing is told */
};

struct header {
    uint32_t magic;
    uint32_t bytes;  /* of the memory that is used */
    uint32_t stages;
    uint32_t result; /* the words whose sum is told at the end */
    uint32_t words;
    uint32_t pause;  /* cycles between the end of the lines and the next repeat */
    uint32_t biases; /* where a bias for each class lies */
    uint32_t classes; /* 0: a block is told by its loss, else by the class of its greatest sum */
    struct stage stage[MAX_STAGES];
};

static volatile uint32_t *at(uint32_t offset)
{
    return (volatile uint32_t *)(GL_MEMORY + offset);
}

static char kept[KEPT];

/* `high` and `low` over `by`, which is below 2^16, in steps of 16 bits. */
static uint32_t quotient(uint32_t high, uint32_t low, uint32_t by)
{
    uint32_t rest = high % by, upper;

    rest = rest << 16 | low >> 16;
    upper = rest / by;
    rest = rest % by << 16 | (low & 0xffff);
    return upper << 16 | rest / by;
}

/* Class of the greatest of a block's sums with its bias, the first of equals. */
static uint32_t greatest(volatile const struct header *header, volatile const uint32_t *sums)
{
    volatile const int32_t *biases = (volatile const int32_t *)at(header->biases);
    uint32_t class, found = 0;
    int32_t value, best = (int32_t)sums[0] + biases[0];

    for (class = 1; class < header->classes; class++) {
        value = (int32_t)sums[class] + biases[class];
        if (value > best) {
            best = value;
            found = class;
        }
    }
    return found;
}

/* What is told of a stage: fine-tunes have losses. */
struct tally {
    uint64_t loss;
    uint32_t samples;
    uint32_t right;
};

/* Adds a block to the tally; the class of an answer is told at once, in one line for all blocks. */
static void count_block(volatile const struct header *header, volatile const struct stage *stage, uint32_t offset,
                        struct tally *tally)
{
    volatile const uint32_t *told = at(offset + stage->told);
    uint32_t class;

    if (!header->classes) {
        tally->loss += (uint64_t)told[1] << 32 | told[0];
        tally->samples += told[2];
        tally->right += told[3];
        return;
    }
    class = greatest(header, told);
    if (!tally->samples) {
        put_name(stage->name, sizeof stage->name);
        put_text(":");
    }
    put_text(" ");
    put_number(class);
    tally->samples++;
    tally->right += class == *at(offset + BLOCK - 4);
}

static void tell_run(volatile const struct header *header, volatile const struct stage *stage, uint32_t number,
                     const struct tally *tally)
{
    if (header->classes)
        put_text("\n");
    put_name(stage->name, sizeof stage->name);
    if (stage->runs > 1) {
        put_text(" ");
        put_number(number);
    }
    put_text(": ");
    if (!header->classes) {
        put_text("loss ");
        put_fixed(quotient((uint32_t)(tally->loss >> 32), (uint32_t)tally->loss, tally->samples), 16);
        put_text(", ");
    }
    put_number(tally->right);
    put_text(" of ");
    put_number(tally->samples);
    put_text(" right\n");
}

static int run(const gl_device *device, volatile const struct header *header, volatile const struct stage *stage,
               uint64_t *cycles)
{
    gl_counters counters;
    uint32_t number, block, offset;
    int status = GL_OK;

    for (number = 1; number <= stage->runs; number++) {
        struct tally tally = {0, 0, 0};

        for (block = stage->block; block < stage->block + stage->blocks; block++) {
            offset = BLOCK * block;
            status = gl_set_window(device, GL_MEMORY + offset, header->bytes - offset);
            if (status != GL_OK) {
                put_text("error: the driver refused the window\n");
                return status;
            }
            status = run_program(device, stage->program - offset, stage->commands, NULL);
            if (status != GL_OK)
                return status;
            gl_get_counters(device, &counters);
            *cycles += counters.cycles;
            if (stage->told)
                count_block(header, stage, offset, &tally);
        }
        if (stage->told)
            tell_run(header, stage, number, &tally);
    }
    return status;
}

/* Runs all stages and tells the UART, ending with "done" or "failed". */
static void run_stages(volatile const struct header *header)
{
    gl_device device;
    uint64_t cycles = 0;
    uint32_t i;
    int status = GL_OK;

    if (find_device(&device) != GL_OK) {
        put_text("failed\n");
        return;
    }
    if (header->magic != MAGIC || header->stages > MAX_STAGES) {
        put_text("error: no data in memory\nfailed\n");
        return;
    }
    for (i = 0; status == GL_OK && i < header->stages; i++)
        status = run(&device, header, &header->stage[i], &cycles);
    if (status == GL_OK) {
        if (header->words) {
            put_text("adapter: ");
            put_number(header->words);
            put_text(" words, sum ");
            put_hex(gl_sum_words(at(header->result), header->words));
            put_text("\n");
        }
        put_text("cycles: ");
        put_number(cycles);
        put_text("\n");
    }
    put_text(status == GL_OK ? "done\n" : "failed\n");
}

static void give_piece(uint32_t offset)
{
    uint32_t words[PIECE / 4], i;

    for (i = 0; i < PIECE / 4; i++)
        words[i] = at(offset)[i];
    answer_word("give");
    answer_number(offset);
    answer_bytes((const uint8_t *)words, sizeof words);
    answer_end();
}

/* Nothing of a piece is written unless all of it is whole. */
static int take_piece(uint32_t offset, const char *text)
{
    uint32_t words[PIECE / 4], i;

    if (!take_bytes(&text, (uint8_t *)words, sizeof words) || *text)
        return 0;
    for (i = 0; i < PIECE / 4; i++)
        at(offset)[i] = words[i];
    answer_word("data");
    answer_number(offset);
    answer_end();
    return 1;
}

static void give_lines(uint32_t offset)
{
    answer_word("told");
    answer_number(offset);
    answer_number(kept_characters());
    answer_bytes((const uint8_t *)kept + offset, PIECE);
    answer_end();
}

/* What a request asks: nothing was heard, it is answered, or what lies in memory is to be run. */
enum { SILENT, ANSWERED, STARTS };

static int serve(volatile const struct header *header)
{
    const char *text = hear_line();
    uint32_t number;

    if (!text)
        return SILENT;
    if (!*text)
        answer_fault(0, "damaged");
    else if (take_word(&text, "give") && take_number(&text, &number) && !*text) {
        if (number % PIECE || number >= MEMORY_BYTES)
            answer_fault(number, "outside the memory");
        else
            give_piece(number);
    } else if (take_word(&text, "told") && take_number(&text, &number) && !*text) {
        if (number % PIECE || number >= KEPT)
            answer_fault(number, "outside the lines");
        else
            give_lines(number);
    } else if (take_word(&text, "data") && take_number(&text, &number)) {
        if (number % PIECE || number >= MEMORY_BYTES)
            answer_fault(number, "outside the memory");
        else if (!take_piece(number, text))
            answer_fault(number, "no piece");
    } else if (take_word(&text, "start") && take_number(&text, &number) && !*text) {
        if (header->magic != MAGIC || header->bytes > MEMORY_BYTES || header->bytes % 4)
            answer_fault(number, "no data in memory");
        else if (gl_sum_words(at(0), header->bytes / 4) != number)
            answer_fault(number, "the memory has another sum");
        else {
            answer_word("starts");
            answer_number(number);
            answer_end();
            return STARTS;
        }
    } else
        answer_fault(0, "no such request");
    return ANSWERED;
}

/* Answers requests until none has come for `pause` cycles, or one starts a run. */
static int served(volatile const struct header *header, uint32_t pause)
{
    uint32_t begin = GL_BOARD_CYCLES();
    int found;

    while (GL_BOARD_CYCLES() - begin < pause) {
        found = serve(header);
        if (found == STARTS)
            return 1;
        if (found == ANSWERED)
            begin = GL_BOARD_CYCLES();
    }
    return 0;
}

int main(void)
{
    volatile const struct header *header = (volatile const struct header *)GL_MEMORY;
    uint32_t repeat;

    gl_board_start();
    for (;;) {
        keep_text(kept, sizeof kept);
        run_stages(header);
        keep_text(0, 0);
        for (repeat = 1; !served(header, header->magic == MAGIC ? header->pause : PAUSE); repeat++) {
            /* The empty line ends one that a listener has heard the rest of. */
            put_text("\nrepeat ");
            put_number(repeat);
            put_text(" of the lines since power-up:\n");
            put_kept();
        }
    }
}
