/* SPDX-License-Identifier: Apache-2.0
 * The design that a program must find on the board; empty: any. `gradloom generate` fills in its own design. */
#ifndef GRADLOOM_DESIGN_H
#define GRADLOOM_DESIGN_H

#define GL_DESIGN_NAME ""
/* The machine table, as gl_table gives it. */
#define GL_DESIGN_TABLE ""
/* What Linux calls its registers, and the end of its buffer's name. */
#define GL_DESIGN_DEVICE "gradloom"

#endif
