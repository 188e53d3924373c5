/* SPDX-License-Identifier: Apache-2.0
 * The public key that signs what this board installs. */
#ifndef GRADLOOM_SOC_ROOT_H
#define GRADLOOM_SOC_ROOT_H

#include <stdint.h>

#define ROOT_MARK 16

/* A mark, by which soc_image.py finds the place in an image, and the key; zeros: none, and nothing is installed. */
extern volatile const uint8_t gl_root[ROOT_MARK + 32];

#endif
