/* SPDX-License-Identifier: Apache-2.0
 * Blocks of the memory card for who asks by UART; docs/reference/formats.md tells the lines.
 */
#ifndef GRADLOOM_SOC_SERVE_H
#define GRADLOOM_SOC_SERVE_H

/* Takes a byte from the UART, if one has arrived, and answers a request that is whole. */
void serve(void);

#endif
