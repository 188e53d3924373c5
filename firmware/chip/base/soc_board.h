/* SPDX-License-Identifier: Apache-2.0
 * Where soc_main.c finds things on the open system on chip (rtl/soc/soc.v). Another system brings a header of its
 * own, named by -DGL_BOARD_HEADER='"..."': the same three addresses and two functions, and where it has a memory card
 * GL_BOARD_CARD with its functions.
 */
#ifndef GRADLOOM_SOC_BOARD_H
#define GRADLOOM_SOC_BOARD_H

#include <stdint.h>

#define GL_REGISTERS 0x20000000u
/* First byte of the memory that accelerator and processor share: the header of a job lies here. */
#define GL_MEMORY 0x80000000u
#define GL_MEMORY_BYTES 0x40000000u

#define GL_UART 0x10000000u

static inline void gl_board_put(char character)
{
    volatile uint32_t *uart = (volatile uint32_t *)GL_UART;

    while (uart[1] & 1)
        ;
    uart[0] = (uint8_t)character;
}

/* A byte that has arrived, with GL_BOARD_HEARD; a byte is taken once. A board without this listens to nobody. */
#define GL_BOARD_HEARD 0x100u
#define GL_BOARD_LISTEN() (((volatile uint32_t *)GL_UART)[0])

/* The memory card's line: soc_sd.h says what each is for. */
#define GL_BOARD_CARD ((volatile uint32_t *)0x11000000u)

static inline void gl_board_card(uint32_t selected, uint32_t fast)
{
    GL_BOARD_CARD[2] = fast << 1 | selected;
}

static inline void gl_board_card_send(uint32_t byte)
{
    GL_BOARD_CARD[0] = byte;
}

static inline uint32_t gl_board_card_got(void)
{
    return GL_BOARD_CARD[0];
}

static inline void gl_board_card_fetch(void)
{
    GL_BOARD_CARD[1] = 0xffffffffu;
}

static inline void gl_board_card_give(uint32_t word)
{
    GL_BOARD_CARD[1] = word;
}

static inline void gl_board_card_sum_sent(void)
{
    GL_BOARD_CARD[3] = 1;
}

static inline uint32_t gl_board_card_word(void)
{
    return GL_BOARD_CARD[1];
}

static inline uint32_t gl_board_card_sum(void)
{
    return GL_BOARD_CARD[2];
}

static inline uint32_t gl_board_card_tries(void)
{
    return GL_BOARD_CARD[3];
}

#define GL_BOARD_CARD_POWER(on) (GL_BOARD_CARD[2] = (on) ? 0 : 4)

/* SHA-256, a unit beside the processor. */
#define GL_BOARD_DIGEST ((volatile uint32_t *)0x12000000u)

/* Whether the pin says that mains power is gone. */
#define GL_BOARD_MAINS_LOST() (((volatile uint32_t *)GL_UART)[1] >> 1 & 1)

/* The chip's temperature, as the converter has it: 4096 / 503.975 a kelvin. */
#define GL_BOARD_TEMPERATURE() (((volatile uint32_t *)GL_UART)[1] >> 16 & 0xfff)

/* Before the first look at the shared memory: what must be done so that the processor's caches do not hold it. */
static inline void gl_board_start(void)
{
    /* This processor has no caches. */
}

#endif
