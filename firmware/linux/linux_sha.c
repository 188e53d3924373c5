/* SPDX-License-Identifier: Apache-2.0
 * SHA-256 for Linux: the system on chip's own, in software. */
#define GL_BOARD_HEADER "linux_sha.h"
#include "soc_sha.c"
