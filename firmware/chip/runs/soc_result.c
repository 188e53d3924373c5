/* SPDX-License-Identifier: Apache-2.0 */
#include "soc_result.h"

#include "gradloom_sum.h"
#include "soc_text.h"

/* By long division: 64-bit division would need a library. */
uint32_t nats(uint32_t high, uint32_t low, uint32_t tokens)
{
    uint32_t rest = 0, mean = 0, bit;

    for (bit = 0; bit < 64; bit++) {
        rest = rest << 1 | high >> 31;
        high = high << 1 | low >> 31;
        low <<= 1;
        mean <<= 1;
        if (rest >= tokens) {
            rest -= tokens;
            mean |= 1;
        }
    }
    return (uint32_t)((uint64_t)mean * 45426u >> 16); /* ln 2 */
}

static void put_result(volatile const struct job *job, volatile const struct result *result)
{
    volatile const uint32_t *words = in_window(job, result->offset);

    put_name(result->name, sizeof result->name);
    if (result->kind == NUMBER) {
        put_text(" = ");
        put_fixed(words[0], result->fraction);
    } else if (result->kind == LOSS) {
        put_text(" = ");
        if (words[2]) {
            put_fixed(nats(words[1], words[0], words[2]), 16);
            put_text(" nats a token, ");
        }
        put_number(words[2]);
        put_text(" tokens");
    } else {
        put_text(": ");
        put_number(result->words);
        put_text(" words, sum ");
        put_hex(gl_sum_words(words, result->words));
    }
    put_text("\n");
}

void put_run(const gl_device *device, uint32_t number)
{
    gl_counters counters;
    gl_health health;

    gl_get_counters(device, &counters);
    gl_get_health(device, &health);
    put_text("run ");
    put_number(number);
    put_text(": ");
    put_number(counters.cycles);
    put_text(" cycles, ");
    put_number(counters.read_beats);
    put_text(" beats read, ");
    put_number(counters.write_beats);
    put_text(" written, ");
    put_number(health.saturated);
    put_text(" saturated\n");
}

void put_results(volatile const struct job *job)
{
    uint32_t i;

    for (i = 0; i < job->results; i++)
        put_result(job, results_of(job) + i);
}

int put_why(const char *why)
{
    put_text("error: ");
    put_text(why);
    put_text("\n");
    return GL_ARGUMENT;
}
