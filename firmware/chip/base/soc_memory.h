/* SPDX-License-Identifier: Apache-2.0
 * Where things are on this board, and what it may leave out of its header. */
#ifndef GRADLOOM_SOC_MEMORY_H
#define GRADLOOM_SOC_MEMORY_H

#ifdef GL_BOARD_HEADER
#include GL_BOARD_HEADER
#else
#include "soc_board.h"
#endif

/* Whether mains power is gone, where a pin says so. */
#ifndef GL_BOARD_MAINS_LOST
#define GL_BOARD_MAINS_LOST() 0
#endif

/* The chip's temperature, 4096 / 503.975 a kelvin, where something measures it. */
#ifndef GL_BOARD_TEMPERATURE
#define GL_BOARD_TEMPERATURE() 0u
#endif

/* Cycles of the clock, which wrap around: rdcycle, without the name of an extension that a compiler may not know. */
#ifndef GL_BOARD_CYCLES
static inline uint32_t gl_cycles(void)
{
    uint32_t now;

    __asm__ volatile(".insn i 0x73, 2, %0, x0, -1024" : "=r"(now));
    return now;
}
#define GL_BOARD_CYCLES gl_cycles
#endif

#endif
