/* soc_infer.c with an accelerator that does what a test says.
 * Usage: infer_host IMAGE: memory is the file's bytes, its job's header first. Then lines: `line TEXT` is a request by
 * UART, `step N STATUS` that many looks at the accelerator, `word OFFSET VALUE` writes the window, `show OFFSET WORDS`
 * prints it, `served WAITED ALL`, `copy ADAPTER`, `close`. Each program that begins is printed with its first words. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soc_infer.h"
#include "soc_memory.h"

uintptr_t host_memory;
static uint32_t memory[1 << 15];
static int status;
static uint32_t longest, all_cycles;

static uint32_t *window(uint32_t offset)
{
    return memory + (((struct job *)memory)->window_offset + offset) / 4;
}

int gl_request(const gl_device *device, uint32_t program_offset, uint32_t commands)
{
    (void)device;
    printf("run %" PRIx32 " %" PRIu32, program_offset, commands);
    for (int i = 0; i < 5; i++)
        printf(" %" PRId32, (int32_t)window(program_offset)[i]);
    printf("\n");
    return GL_OK;
}

int gl_poll_request(const gl_device *device)
{
    (void)device;
    return status;
}

void gl_get_served(const gl_device *device, uint32_t *waited, uint32_t *cycles)
{
    (void)device;
    *waited = longest;
    *cycles = all_cycles;
}

int main(int count, char **words)
{
    static const gl_device device;
    char text[1024];
    uint32_t first, second;
    const char *why;
    FILE *file = fopen(words[count - 1], "rb");

    if (!file || fread(memory, 1, sizeof memory, file) == 0)
        return 2;
    fclose(file);
    host_memory = (uintptr_t)memory;
    why = infer_open(&device, (struct job *)memory);
    printf("%s\n", why ? why : "open");
    while (fgets(text, sizeof text, stdin)) {
        text[strcspn(text, "\n")] = 0;
        if (!strncmp(text, "line ", 5))
            infer_request(text + 5);
        else if (sscanf(text, "step %" SCNu32 " %d", &first, &status) == 2)
            while (first--)
                infer_step();
        else if (sscanf(text, "word %" SCNu32 " %" SCNu32, &first, &second) == 2)
            *window(first) = second;
        else if (sscanf(text, "show %" SCNu32 " %" SCNu32, &first, &second) == 2)
            for (uint32_t i = 0; i < second; i++)
                printf("%" PRId32 "%s", (int32_t)window(first)[i], i + 1 < second ? " " : "\n");
        else if (sscanf(text, "served %" SCNu32 " %" SCNu32, &longest, &all_cycles) == 2)
            ;
        else if (sscanf(text, "copy %" SCNu32, &first) == 1)
            infer_copy(first);
        else if (!strcmp(text, "close"))
            infer_close();
        else
            return 2;
    }
    return 0;
}
