/* SPDX-License-Identifier: Apache-2.0 */
#include "soc_root.h"

#ifndef GL_ROOT_KEY
#define GL_ROOT_KEY 0
#endif

__attribute__((aligned(4))) volatile const uint8_t gl_root[ROOT_MARK + 32] = {
    'g', 'r', 'a', 'd', 'l', 'o', 'o', 'm', ' ', 'r', 'o', 'o', 't', ' ', ':', ' ', GL_ROOT_KEY};
