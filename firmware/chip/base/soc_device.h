/* SPDX-License-Identifier: Apache-2.0
 * The accelerator, as every firmware deals with it: found at power-up, and asked to run a program. Both tell the UART.
 */
#ifndef GRADLOOM_SOC_DEVICE_H
#define GRADLOOM_SOC_DEVICE_H

#include "gradloom.h"

/* Looks for the accelerator and prints its parameters, or that there is none. GL_OK, or why there is none. */
int find_device(gl_device *device);

/* Runs a program in the window to its end; GL_OK, or an error that was told. Meanwhile calls `meanwhile`, unless it is
 * NULL. */
int run_program(const gl_device *device, uint32_t offset, uint32_t commands, void (*meanwhile)(void));

#endif
