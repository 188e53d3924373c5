/* SPDX-License-Identifier: Apache-2.0
 * Answers a prompt by the language model of a folder, which firmware/jobs/job.py describes. */
#ifndef GRADLOOM_LINUX_ANSWER_H
#define GRADLOOM_LINUX_ANSWER_H

/* Prints the answer's tokens. `words`: [--tokens N] FOLDER [TOKEN...]. `at`: the socket of a simulation, or NULL.
   Exit code: 0 where it is whole, 1 where a program stops with an error; or exits with 2. */
int answer_run(const char *at, int count, char **words);

#endif
