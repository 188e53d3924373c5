/* SPDX-License-Identifier: Apache-2.0
 * Requests by UART: blocks of the memory card, packages for its inbox, prompts (soc_infer.h). docs/reference/formats.md
 * tells the lines.
 */
#ifndef GRADLOOM_SOC_SERVE_H
#define GRADLOOM_SOC_SERVE_H

/* Takes a byte from the UART, if one has arrived, and answers a request that is whole. Whether the card is to be read as
 * after a reset, which is asked for between jobs alone: `idle`. */
int serve(int idle);

#endif
