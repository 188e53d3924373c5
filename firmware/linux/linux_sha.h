/* SPDX-License-Identifier: Apache-2.0
 * What soc_sha.c asks of a board, for Linux: no unit that makes sums, and no counter of cycles. */
#ifndef GRADLOOM_LINUX_SHA_H
#define GRADLOOM_LINUX_SHA_H

#define GL_BOARD_CYCLES() 0u

#endif
