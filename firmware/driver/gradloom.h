/* SPDX-License-Identifier: Apache-2.0
 * Driver of a gradloom accelerator: portable C99, no C library, no allocation.
 *
 * The host puts a program and its data in a buffer (the window) that the accelerator can reach, tells the
 * registers where it is, and rings the bell. Every function below is one or a few register accesses.
 *
 * A register that is locked while a program runs answers a write with a bus error, which stops a Linux
 * kernel. So the functions that write one look at STATUS first and return GL_BUSY.
 *
 * A second program, the request, can run beside the first: it starts where that one yields, or at once.
 */
#ifndef GRADLOOM_H
#define GRADLOOM_H

#include <stddef.h>
#include <stdint.h>

#include "gradloom_regs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What was written to memory before has left the CPU, as it must before the bell rings. */
#if defined(__aarch64__)
#define GL_BARRIER() __asm__ volatile("dsb sy" ::: "memory")
#elif defined(__riscv)
#define GL_BARRIER() __asm__ volatile("fence iorw, iorw" ::: "memory")
#else
#define GL_BARRIER() __sync_synchronize()
#endif

enum gl_status {
    GL_OK = 0,
    GL_RUNNING = 1,    /* gl_poll: the program has not ended */
    GL_NOT_FOUND = -1, /* nothing of the kind at this address */
    GL_VERSION = -2,   /* gl_probe: register map, table or programs of another format */
    GL_ARGUMENT = -3,  /* an argument that the hardware would refuse */
    GL_BUSY = -4,      /* a program runs; gl_request: a request is pending or runs */
    GL_TIMEOUT = -5,   /* the poll limit was reached; the program still runs */
    GL_FAILED = -6,    /* the program stopped with an error: see gl_get_error */
    GL_ABSENT = -7     /* gl_request: the machine was generated without requests */
};

enum {
    GL_PHASES = 16,       /* phase counters; gl_config says how many a machine uses */
    GL_TABLE_BYTES = 512, /* the longest machine table, with its final 0 */
    GL_NEEDS_BYTES = 528, /* the longest text of what a program needs of it */
    GL_UNLIKE_BYTES = 112, /* the longest text of how it differs */
    GL_NAME_BYTES = 32    /* the longest name in it, with a final 0 */
};

/* How to reach the registers. With read and write NULL they are memory at `base`. */
typedef struct gl_device {
    volatile uint32_t *base;
    uint32_t (*read)(void *context, uint32_t offset);
    void (*write)(void *context, uint32_t offset, uint32_t value);
    void *context;
} gl_device;

typedef struct gl_config {
    uint32_t version; /* major[31:16] minor[15:8] patch[7:0] */
    uint32_t engines; /* besides CONTROL, LOAD and STORE */
    uint32_t phases;  /* phase counters in use */
    uint32_t data_bits;
    uint32_t slots;
} gl_config;

typedef struct gl_error {
    uint32_t code;    /* enum gradloom_error */
    uint32_t command; /* position in the program, or in the request, 0 first */
    uint32_t request; /* nonzero: in the request */
    uint64_t address; /* bus address at fault, or 0 */
} gl_error;

typedef struct gl_counters {
    uint64_t cycles; /* bell to interrupt */
    uint32_t phase_cycles[GL_PHASES];
    uint32_t commands_done, commands_dropped;
    uint32_t cache_hits, cache_misses;
    uint32_t read_beats, write_beats;
} gl_counters;

typedef struct gl_health {
    uint32_t saturated, underflowed;
    uint64_t gradient_norm; /* sum of absolute gradients */
} gl_health;

/* Registers in memory at `base`. */
void gl_init_mmio(gl_device *device, volatile void *base);

/* Registers behind functions: a simulator, a debug bridge. */
void gl_init_access(gl_device *device, uint32_t (*read)(void *, uint32_t),
                    void (*write)(void *, uint32_t, uint32_t), void *context);

/* A word at a byte offset. */
uint32_t gl_read(const gl_device *device, uint32_t offset);
void gl_write(const gl_device *device, uint32_t offset, uint32_t value);

/* GL_OK, GL_NOT_FOUND or GL_VERSION. `config` may be NULL. Call it before anything else. */
int gl_probe(const gl_device *device, gl_config *config);

/* The machine table as text, see docs/reference/registers.md: parameters as name=value, engines as
   name:phase,phase:load port,...:store port,... `text` has GL_TABLE_BYTES bytes. Returns its length. */
uint32_t gl_table(const gl_device *device, char *text);

/* A parameter of the table, or `otherwise` if the machine has none of this name. */
uint32_t gl_parameter(const char *table, const char *name, uint32_t otherwise);

/* Where a table is unlike what programs need: the table of their machine, with name>=value where more will do. Returns 0
   if it is not, or the length of `why`, of GL_UNLIKE_BYTES bytes: the first parameter, its value and what it must be. */
uint32_t gl_unlike(const char *table, const char *needs, char *why);

/* The name of a phase counter, to `name` of GL_NAME_BYTES bytes: "wait", "load", "store", then those of the engines in
   their order; empty if there is none. */
void gl_phase_name(const char *table, uint32_t phase, char *name);

/* The bytes that programs may reach. `base` is a bus address and a multiple of 4096. */
int gl_set_window(const gl_device *device, uint64_t base, uint32_t size);

/* Cycles without progress after which a program is stopped; 0 switches the watchdog off. */
int gl_set_watchdog(const gl_device *device, uint32_t cycles);

/* Names the frozen network in the forward cache; another name than before clears the cache. */
int gl_set_base_id(const gl_device *device, uint32_t identity, uint32_t polls);

int gl_clear_cache(const gl_device *device, uint32_t polls);

/* Interrupt line: on (nonzero) or off. */
void gl_enable_interrupt(const gl_device *device, int enable);

/* Clears pending interrupts; nonzero if there was one. */
int gl_acknowledge(const gl_device *device);

/* Rings the bell for the `commands` commands at `program_offset` in the window. */
int gl_start(const gl_device *device, uint32_t program_offset, uint32_t commands);

/* GL_RUNNING, GL_OK or GL_FAILED. */
int gl_poll(const gl_device *device);

/* Polls at most `polls` times. GL_OK, GL_FAILED or GL_TIMEOUT. */
int gl_wait(const gl_device *device, uint32_t polls);

/* gl_start and gl_wait. */
int gl_run(const gl_device *device, uint32_t program_offset, uint32_t commands, uint32_t polls);

/* Queues the `commands` commands at `program_offset` as the request. */
int gl_request(const gl_device *device, uint32_t program_offset, uint32_t commands);

/* As gl_poll and gl_wait. An error of either stops both. */
int gl_poll_request(const gl_device *device);
int gl_wait_request(const gl_device *device, uint32_t polls);

/* Of the last request that started: cycles from its bell to its start, and to its end. */
void gl_get_served(const gl_device *device, uint32_t *waited, uint32_t *cycles);

/* Stops program and request (they end with the error ABORTED) and resets the engines. GL_OK or GL_TIMEOUT. */
int gl_reset(const gl_device *device, uint32_t polls);

void gl_get_error(const gl_device *device, gl_error *error);
void gl_get_counters(const gl_device *device, gl_counters *counters);
void gl_get_health(const gl_device *device, gl_health *health);

/* Name and meaning of an error code; never NULL. */
const char *gl_error_name(uint32_t code);
const char *gl_error_text(uint32_t code);

#ifdef __cplusplus
}
#endif

#endif
