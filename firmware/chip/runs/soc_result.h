/* SPDX-License-Identifier: Apache-2.0
 * What a run of a job is told to have done. */
#ifndef GRADLOOM_SOC_RESULT_H
#define GRADLOOM_SOC_RESULT_H

#include "gradloom.h"
#include "soc_job.h"

/* Counters of the run that has just ended, the job's results, or a job's refusal, which is returned as GL_ARGUMENT. */
void put_run(const gl_device *device, uint32_t number);
void put_results(volatile const struct job *job);
int put_why(const char *why);

/* Mean cross-entropy in nats of a token, 16 bits behind the point, of a sum to base 2 with as many. */
uint32_t nats(uint32_t high, uint32_t low, uint32_t tokens);

#endif
