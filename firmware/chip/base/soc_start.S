/* SPDX-License-Identifier: Apache-2.0
 * First instructions: stack, cleared variables, main. */
    .section .start, "ax"
    .globl _start
_start:
    .option push
    .option norelax
    la sp, gl_stack
    la t0, gl_bss
    la t1, gl_bss_end
1:  bgeu t0, t1, 2f
    sw zero, 0(t0)
    addi t0, t0, 4
    j 1b
2:  call main
3:  j 3b
    .option pop
