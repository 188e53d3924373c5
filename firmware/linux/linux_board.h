/* SPDX-License-Identifier: Apache-2.0
 * The accelerator under Linux: registers over UIO and a buffer from u-dma-buf; or both of a simulation at a socket.
 */
#ifndef GRADLOOM_LINUX_BOARD_H
#define GRADLOOM_LINUX_BOARD_H

#include "gradloom.h"

typedef struct board {
    gl_device device;
    gl_config config;
    char table[GL_TABLE_BYTES];
    uint64_t base, size; /* of the window */
    uint8_t *window;     /* NULL: behind the socket */
    int uio, socket;
} board;

/* Called with the line before a fault ends the program; NULL: nobody is. */
extern void (*board_on_fault)(const char *line);

/* Ends the program with exit code 2 and one line. */
void board_fail(const char *what, const char *why) __attribute__((noreturn));

/* Keeps other programs away from the board, or exits; `at`: the simulation's socket, or NULL. */
void board_lock(const char *at);

/* Opens the board and compares its design before anything is written, or exits. Sets no window. */
void board_open(board *made, const char *at);

void board_store(board *to, uint64_t offset, const void *data, size_t length);
void board_fetch(board *from, uint64_t offset, void *data, size_t length);

/* The end of a started program: GL_OK, GL_FAILED, or GL_TIMEOUT after so many milliseconds. */
int board_wait(board *of, int64_t timeout);

/* Runs a program to its end: GL_OK, or GL_FAILED with `error` and a line of `size` bytes that tells it. Exits where no
   command ends for ten minutes. */
int board_run(board *on, uint32_t offset, uint32_t commands, gl_error *error, char *line, size_t size);

/* Stops what runs. */
void board_stop(board *on);

int64_t board_milliseconds(void);

/* A whole number of an argument, or exits; `what`: its name. */
uint64_t board_number(const char *text, uint64_t low, uint64_t high, const char *what);

#endif
