/* SPDX-License-Identifier: Apache-2.0
 * Prompts by UART: tokens in, tokens out, by the request queue of the accelerator, beside a job's programs.
 *
 * A job may bring a program of one token, a table that patches it for each position (gradloom_steps.h), and a
 * description of both. Three adapters are resident, each with its exponents: none, the one the job began with, and what
 * it has kept last. A prompt chooses one; the base stays where it is.
 */
#ifndef GRADLOOM_SOC_INFER_H
#define GRADLOOM_SOC_INFER_H

#include "gradloom.h"
#include "soc_job.h"

enum { INFER_BASE, INFER_START, INFER_KEPT, INFER_ADAPTERS };

/* Prompts are for this job from here on, which the window is set for. NULL, or what is wrong with its description. */
const char *infer_open(const gl_device *device, volatile const struct job *job);

/* The job's words become one of the resident adapters. */
void infer_copy(uint32_t adapter);

/* A request by UART; others than prompts have no answer. */
void infer_request(const char *text);

/* Looks at the token under way, and begins the next. Called while the processor waits. */
void infer_step(void);

/* Waits until no token is under way, and takes no more prompts. */
void infer_close(void);

#endif
