/* SPDX-License-Identifier: Apache-2.0 */
#include "soc_device.h"
#include "soc_text.h"

#include "soc_memory.h"

int find_device(gl_device *device)
{
    char table[GL_TABLE_BYTES], *at;
    int status;

#ifdef GL_BOARD_READ
    gl_init_access(device, GL_BOARD_READ, GL_BOARD_WRITE, NULL);
#else
    gl_init_mmio(device, (volatile void *)GL_REGISTERS);
#endif
    status = gl_probe(device, NULL);
    if (status != GL_OK) {
        put_text(status == GL_NOT_FOUND ? "gradloom: no accelerator\n" : "gradloom: another register map\n");
        return status;
    }
    /* The table's parameters: name=value, separated by commas, up to the first semicolon. */
    gl_table(device, table);
    for (at = table; *at && *at != ';'; at++)
        ;
    *at = 0;
    put_text("gradloom: ");
    put_text(table);
    put_text("\n");
    return GL_OK;
}

/* What stopped a program. */
static void put_error(const gl_device *device)
{
    gl_error error;

    gl_get_error(device, &error);
    put_text("error: ");
    put_text(gl_error_name(error.code));
    put_text(" ");
    put_hex(error.code);
    put_text(" at command ");
    put_number(error.command);
    put_text(", address ");
    put_hex((uint32_t)error.address);
    put_text(": ");
    put_text(gl_error_text(error.code));
    put_text("\n");
}

int run_program(const gl_device *device, uint32_t offset, uint32_t commands, void (*meanwhile)(void))
{
    int status = gl_start(device, offset, commands);

    if (status != GL_OK) {
        put_text("error: the driver refused the program\n");
        return status;
    }
    while ((status = gl_poll(device)) == GL_RUNNING)
        if (meanwhile)
            meanwhile();
    gl_acknowledge(device);
    if (status != GL_OK)
        put_error(device);
    return status;
}
