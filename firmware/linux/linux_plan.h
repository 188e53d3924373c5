/* SPDX-License-Identifier: Apache-2.0
 * The plan of a job folder, which firmware/jobs/job.py describes, and its data. */
#ifndef GRADLOOM_LINUX_PLAN_H
#define GRADLOOM_LINUX_PLAN_H

#include <stdio.h>

#include "linux_board.h"
#include "linux_json.h"
#include "soc_sha.h"

typedef struct job {
    int root; /* the folder */
    json plan;
    uint64_t window, data_bytes, watchdog, result_bytes;
    uint32_t stages, losses, answers; /* values of the plan; the last two may be JSON_NONE */
    uint64_t loss_offset, loss_count, loss_scale, loss_rows, loss_row_bytes, loss_bits, told;
    int sums;
    char sha[65], table[GL_NEEDS_BYTES], name[100];
    uint64_t data_bits;
    FILE *data, *result;
    struct sha sum;
    char *counters;
    size_t counters_length;
} job;

/* Bytes in front of the rows of a record of losses, of which the first is the exponent. */
#define LOSS_HEADER 32

/* Bytes of losses in memory. */
uint64_t loss_bytes(const job *of);

/* Ends the program: the plan is at fault. */
void plan_refuse(const char *format, ...) __attribute__((noreturn));

/* Reads and checks all of a folder's plan but its answers, and the sum of the data, or exits. */
void plan_read(job *of, const char *folder);

/* The machine, with the job's design and nothing running, and memory of zeros, or exits. */
void plan_begin(const job *of, board *place, const char *at);

/* Writes what a stage brings to memory. */
void plan_write(const job *of, board *place, uint32_t writes);

/* Bytes of the data, or exits. */
void plan_data(const job *of, uint64_t from, void *to, size_t length);

/* A whole number of the plan, or exits. */
uint64_t plan_number(const job *of, uint32_t at, uint64_t low, uint64_t high, const char *name);

/* A file of the folder, or exits. */
FILE *plan_file(const job *of, const char *name, const char *mode, int flags);

/* 64 digits and a 0, of 32 bytes. */
void plan_hex(const uint8_t *digest, char *text);

#endif
