/* SPDX-License-Identifier: Apache-2.0
 * Runs a job folder, which firmware/jobs/job.py describes, from its beginning. */
#ifndef GRADLOOM_LINUX_JOB_H
#define GRADLOOM_LINUX_JOB_H

/* Exit code: 0 where the job is done, 2 where it is refused or stops. `at`: the socket of a simulation, or NULL. */
int job_run(const char *folder, const char *at);

#endif
