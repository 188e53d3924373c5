/* SPDX-License-Identifier: Apache-2.0
 * A trial of installed words: the loss on a held-out text that the card brings, before and after. */
#ifndef GRADLOOM_SOC_TRIAL_H
#define GRADLOOM_SOC_TRIAL_H

#include "gradloom.h"
#include "soc_job.h"

/* Tries the words in use, if that is due, by the job's trial, for which the window is set. They stay unless the loss grows
 * by more than their package allows; then those before come back, here and on the card. NULL, or why there was no trial. */
const char *trial(const gl_device *device, volatile const struct job *job);

#endif
