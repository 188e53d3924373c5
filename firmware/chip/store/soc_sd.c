/* SPDX-License-Identifier: Apache-2.0
 * Names and numbers are those of the SD Specifications, Part 1, chapter 7 (SPI mode). */
#include "soc_sd.h"

#include <stddef.h>

#include "gradloom_sum.h"

#include "soc_memory.h"

#ifdef GL_BOARD_CARD

/* A card may take a second to start: so many rounds of two commands at 400 kHz. */
#ifndef GL_CARD_ROUNDS
#define GL_CARD_ROUNDS 3000u
#endif
/* And 100 ms to find a block: so many bytes at 20 MHz. */
#ifndef GL_CARD_WAIT
#define GL_CARD_WAIT 250000u
#endif
/* And 500 ms to store blocks. */
#ifndef GL_CARD_BUSY
#define GL_CARD_BUSY 1250000u
#endif
#define TRIES 3

enum { GO_IDLE = 0, SEND_IF_COND = 8, STOP = 12, SEND_STATUS = 13, SET_BLOCKLEN = 16, READ_MULTIPLE = 18,
       WRITE_MULTIPLE = 25, SEND_OP_COND = 41, APP_CMD = 55, READ_OCR = 58, CRC_ON_OFF = 59 };
/* Answers. */
enum { READY = 0x00, IDLE = 0x01, ILLEGAL = 0x04, DAMAGED = 0x08, SILENCE = 0xff };
#define DATA_TOKEN 0xfeu
/* Of a WRITE_MULTIPLE: before a block, and behind the last one. */
#define WRITE_TOKEN 0xfcu
#define STOP_TOKEN 0xfdu
/* Five bits of the answer to a block, and the second byte of SEND_STATUS. */
enum { ACCEPTED = 0x05, BAD_SUM = 0x0b, PROTECTED = 0x20 };
/* 2.7 to 3.6 V, and a pattern that comes back. */
#define CONDITION 0x1aau
/* In the argument of SEND_OP_COND: we know large cards. In OCR: it is one. */
#define LARGE 0x40000000u

const char sd_nobody[] = "none";
static int fast, large;

static uint32_t exchange(uint32_t byte)
{
    gl_board_card_send(byte);
    return gl_board_card_got();
}

static uint32_t sum7(uint32_t sum, uint32_t byte)
{
    int bit;

    sum ^= byte;
    for (bit = 0; bit < 8; bit++)
        sum = (sum << 1 ^ (sum & 0x80 ? 0x12 : 0)) & 0xff;
    return sum;
}

static void release(void)
{
    gl_board_card(0, fast);
    /* The card lets go of the line with the next clock. */
    exchange(0xff);
}

/* Leaves the card selected. */
static uint32_t command(uint32_t index, uint32_t argument)
{
    uint32_t byte = 0x40 | index, sum = sum7(0, byte), answer, i;

    gl_board_card(1, fast);
    exchange(0xff);
    exchange(byte);
    for (i = 0; i < 4; i++) {
        byte = argument >> 24;
        argument <<= 8;
        sum = sum7(sum, byte);
        exchange(byte);
    }
    exchange(sum | 1);
    if (index == STOP)
        exchange(0xff); /* the end of a block: means nothing */
    for (i = 0; i < 9; i++) {
        answer = exchange(0xff);
        if (!(answer & 0x80))
            return answer;
    }
    return SILENCE;
}

static uint32_t simple(uint32_t index, uint32_t argument)
{
    uint32_t answer = command(index, argument);

    release();
    return answer;
}

/* A command whose answer has four bytes more. */
static uint32_t longer(uint32_t index, uint32_t argument, uint32_t *value)
{
    uint32_t answer = command(index, argument), i;

    *value = 0;
    if (!(answer & ~(uint32_t)IDLE))
        for (i = 0; i < 4; i++)
            *value = *value << 8 | exchange(0xff);
    release();
    return answer;
}

/* A command to a card that has just got power: it may ignore the first ones. */
static uint32_t insist(uint32_t index, uint32_t argument)
{
    uint32_t tries = gl_board_card_tries(), answer;

    do
        answer = simple(index, argument);
    while ((answer == SILENCE || answer & DAMAGED) && --tries);
    return answer;
}

/* So long as `words` of four bytes take. */
static void pass(uint32_t words)
{
    while (words--) {
        gl_board_card_fetch();
        gl_board_card_word();
    }
}

static const char *reset_card(void)
{
    uint32_t tries = gl_board_card_tries(), answer, heard = 0;

    /* A millisecond with 74 clocks or more, while the card is not selected. */
    gl_board_card(0, fast);
    pass(13);
    /* It may ignore the first ones, or be in the middle of a block from before our own reset. */
    do {
        answer = simple(GO_IDLE, 0);
        if (answer == IDLE)
            return NULL;
        heard |= answer ^ SILENCE;
    } while (--tries);
    return heard ? "the card does not reset" : sd_nobody;
}

const char *sd_start(void)
{
    const char *why;
    uint32_t answer, value, known, i;

    fast = 0;
    why = reset_card();
#ifdef GL_BOARD_CARD_POWER
    if (why) {
        /* A card that hangs forgets that without power. All tries are half a second and have 17 bytes each, so four for
           each are more than 100 ms. */
        GL_BOARD_CARD_POWER(0);
        pass(gl_board_card_tries());
        GL_BOARD_CARD_POWER(1);
        why = reset_card();
    }
#endif
    if (why)
        return why;
    for (i = gl_board_card_tries(); i; i--) {
        answer = longer(SEND_IF_COND, CONDITION, &value);
        if (answer != SILENCE)
            break;
    }
    known = answer == IDLE;
    if (known ? (value & 0xfff) != CONDITION : answer == SILENCE || !(answer & ILLEGAL))
        return "the card does not take 3.3 V";
    /* Without this the card sends blocks with no sum. */
    if (insist(CRC_ON_OFF, 1) != IDLE)
        return "the card makes no sums";
    for (i = 0; i < GL_CARD_ROUNDS; i++) {
        answer = simple(APP_CMD, 0);
        if (!(answer & ~(uint32_t)IDLE))
            answer = simple(SEND_OP_COND, known ? LARGE : 0);
        if (answer != IDLE)
            break;
    }
    if (answer != READY)
        return answer == IDLE ? "the card does not start" : "this is no SD card";
    if (longer(READ_OCR, 0, &value) != READY)
        return "the card does not tell its size";
    large = known && (value & LARGE);
    if (!large && simple(SET_BLOCKLEN, 4 * SD_BLOCK_WORDS) != READY)
        return "the card has no blocks of 512 bytes";
    fast = 1;
    return NULL;
}

/* The next block of a READ_MULTIPLE. */
static const char *take_block(volatile uint32_t *to, uint32_t words, uint32_t *sum)
{
    uint32_t byte = SILENCE, total = *sum, word, i;

    for (i = 0; i < GL_CARD_WAIT && byte == SILENCE; i++)
        byte = exchange(0xff);
    if (byte != DATA_TOKEN)
        return byte == SILENCE ? "the card sends no data" : "the card cannot read a block";
    gl_board_card(1, fast);
    gl_board_card_fetch();
    for (i = 1; i <= SD_BLOCK_WORDS; i++) {
        word = gl_board_card_word();
        /* The next word comes while this one is dealt with; behind the last one comes its sum. */
        if (i < SD_BLOCK_WORDS)
            gl_board_card_fetch();
        else
            gl_board_card_send(0xff);
        if (i <= words) {
            if (to)
                *to++ = word;
            total = gl_sum_word(total, word);
        }
    }
    exchange(0xff);
    if (gl_board_card_sum())
        return "blocks arrive damaged";
    *sum = total;
    return NULL;
}

/* Whether the card is no longer busy. */
static int idle_again(uint32_t bytes)
{
    while (bytes--)
        if (exchange(0xff) == 0xff)
            return 1;
    return 0;
}

static const char *stop(uint32_t bytes)
{
    return command(STOP, 0) == SILENCE || !idle_again(bytes) ? "the card does not stop" : NULL;
}

const char *sd_read(uint32_t first, uint32_t words, volatile uint32_t *to, uint32_t *sum)
{
    const char *why, *ended;
    uint32_t part, failed = 0;

    while (words) {
        why = command(READ_MULTIPLE, large ? first : 4 * SD_BLOCK_WORDS * first) == READY
                  ? NULL : "the card refuses to read";
        while (words && !why) {
            part = words < SD_BLOCK_WORDS ? words : SD_BLOCK_WORDS;
            why = take_block(to, part, sum);
            if (!why) {
                to = to ? to + part : to;
                words -= part;
                first++;
                failed = 0;
            }
        }
        ended = stop(GL_CARD_WAIT);
        release();
        if (!why)
            why = ended;
        if (why && ++failed == TRIES)
            return why;
    }
    return NULL;
}

static const char damaged[] = "blocks arrive at the card damaged";

/* The next block of a WRITE_MULTIPLE, of which `words` are given. */
static const char *give_block(volatile const uint32_t *from, uint32_t words, uint32_t *total)
{
    uint32_t answer = SILENCE, sum, word, all = *total, i;

    exchange(WRITE_TOKEN);
    gl_board_card_sum_sent();
    for (i = 0; i < SD_BLOCK_WORDS; i++) {
        word = i < words ? from[i] : 0;
        gl_board_card_give(word);
        /* While it is on the line. */
        if (i < words)
            all = gl_sum_word(all, word);
    }
    sum = gl_board_card_sum();
    exchange(sum >> 8);
    exchange(sum & 0xff);
    for (i = 0; i < 9 && answer == SILENCE; i++)
        answer = exchange(0xff);
    if (answer == SILENCE)
        return "the card does not answer a block";
    if (!idle_again(GL_CARD_BUSY))
        return "the card stays busy";
    answer &= 0x1f;
    if (answer == ACCEPTED)
        *total = all;
    return answer == ACCEPTED ? NULL : answer == BAD_SUM ? damaged : "the card cannot write a block";
}

/* What the card says of a write behind its end, if it is worse than `why`. */
static const char *written(const char *why)
{
    uint32_t answer = command(SEND_STATUS, 0), more = exchange(0xff);

    release();
    if (answer == SILENCE)
        return "the card is gone";
    if (more & PROTECTED)
        return "the card is write-protected";
    return why ? why : answer || more ? "the card cannot write a block" : NULL;
}

const char *sd_write(uint32_t first, uint32_t words, volatile const uint32_t *from, uint32_t *sum)
{
    const char *why;
    uint32_t part, failed = 0;

    while (words) {
        why = command(WRITE_MULTIPLE, large ? first : 4 * SD_BLOCK_WORDS * first) == READY
                  ? NULL : "the card refuses to write";
        while (words && !why) {
            part = words < SD_BLOCK_WORDS ? words : SD_BLOCK_WORDS;
            why = give_block(from, part, sum);
            if (!why) {
                from += part;
                words -= part;
                first++;
                failed = 0;
            }
        }
        if (why) {
            stop(GL_CARD_BUSY);
        } else {
            exchange(STOP_TOKEN);
            exchange(0xff); /* the card may be busy from the next byte on */
            if (!idle_again(GL_CARD_BUSY))
                why = "the card stays busy";
        }
        release();
        why = written(why);
        if (why && (why != damaged || ++failed == TRIES))
            return why;
    }
    return NULL;
}

#endif
