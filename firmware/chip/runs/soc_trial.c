/* SPDX-License-Identifier: Apache-2.0 */
#include "soc_trial.h"

#include "soc_card.h"
#include "soc_deliver.h"
#include "soc_device.h"
#include "soc_part.h"
#include "soc_result.h"
#include "soc_text.h"

#ifdef GL_BOARD_CARD

#define MAGIC 0x52544c47u /* "GLTR" */

/* The description. */
struct description {
    struct part part;
    uint32_t loss; /* where the program leaves it */
};

static const char *find(volatile const struct job *job, gl_steps *steps, uint32_t *loss)
{
    volatile const struct description *found = (volatile const struct description *)in_window(job, job->trial);

    if (part_open(job, job->trial, MAGIC, sizeof *found, steps) != PART_GOOD || !inside(found->loss, 16, job->window_bytes))
        return "the trial is outside the window, or of another layout";
    *loss = found->loss;
    return gl_steps_check(steps);
}

/* The mean loss with the words in the window, in nats with 16 bits behind the point. */
static const char *measure(const gl_device *device, const gl_steps *steps, uint32_t at, uint32_t *loss)
{
    volatile const uint32_t *words = steps->window + at / 4;
    uint32_t program;
    const char *why = gl_steps_prepare(steps, 0, &program);

    if (!why && run_program(device, steps->offset[0], steps->commands[0], NULL) != GL_OK)
        why = "the trial's program stops";
    if (!why && words[2] == 0)
        why = "the held-out text has no tokens";
    if (!why)
        *loss = nats(words[1], words[0], words[2]);
    return why;
}

const char *trial(const gl_device *device, volatile const struct job *job)
{
    uint32_t bound, loss, before = 0, after = 0, version, sum = delivered_sum();
    volatile uint32_t *words = in_window(job, job->adapter);
    const char *why;
    gl_steps steps;
    int stays;

    if (!job->trial || !trial_due(&bound))
        return NULL;
    why = find(job, &steps, &loss);
    if (!why)
        why = measure(device, &steps, loss, &after);
    if (!why)
        why = trial_words(1, words);
    if (!why)
        why = measure(device, &steps, loss, &before);
    if (why)
        return why;
    stays = !bound || after <= before || after - before <= (uint64_t)before * bound >> 16;
    if (stays)
        why = trial_words(0, words);
    if (!why)
        why = trial_end(stays, &version);
    if (why)
        return why;
    card_area.identity ^= sum ^ delivered_sum();
    put_text("install: held-out loss ");
    put_fixed(before, 16);
    put_text(" before, ");
    put_fixed(after, 16);
    put_text(stays ? " after: version " : " after, above its bound: back to version ");
    put_number(version);
    put_text("\n");
    return NULL;
}

#else

const char *trial(const gl_device *device, volatile const struct job *job)
{
    (void)device;
    (void)job;
    return NULL;
}

#endif
