/* SPDX-License-Identifier: Apache-2.0
 * An adapter in memory that is always the last complete one: two places are written by turns.
 *
 * A place is a header of GL_STORE_HEADER_BYTES and up to `capacity` bytes of adapter; the second place follows the
 * first. The header's words, little-endian: magic, layout, sequence number, bytes of the adapter, CRC-32 of the adapter,
 * CRC-32 of the four words before. Whoever writes clears the magic of the place that is not the newest, writes the
 * adapter, then the header, its magic last; so a write cut short leaves the other place as the newest. Whoever reads
 * takes the newest of the places whose both sums hold. firmware/chip/adapter_store.py reads and writes the same.
 */
#ifndef GRADLOOM_STORE_H
#define GRADLOOM_STORE_H

#include "gradloom.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GL_STORE_MAGIC 0x44414c47u /* "GLAD" */
#define GL_STORE_LAYOUT 1u
#define GL_STORE_HEADER_BYTES 64u

typedef struct gl_store {
    gl_device memory;  /* the memory's words: gl_init_mmio or gl_init_access */
    uint32_t offset;   /* of the first place in that memory; a multiple of 64 */
    uint32_t capacity; /* bytes of the largest adapter; a multiple of 64 */
} gl_store;

typedef struct gl_adapter {
    uint32_t offset; /* of its first byte in the memory */
    uint32_t bytes;
    uint32_t sequence;
} gl_adapter;

/* The newest whole adapter: GL_OK, or GL_NOT_FOUND if neither place holds one. */
int gl_store_find(const gl_store *store, gl_adapter *found);

/* Gives up the place that is not the newest, and tells where the next adapter has to be written: by the processor, or by
 * the accelerator. */
uint32_t gl_store_begin(const gl_store *store);

/* Makes what was written since gl_store_begin the newest adapter: all of it must have arrived. GL_OK, or GL_ARGUMENT if
 * `bytes` is not a multiple of 4 up to the capacity. */
int gl_store_commit(const gl_store *store, uint32_t bytes);

#ifdef __cplusplus
}
#endif

#endif
