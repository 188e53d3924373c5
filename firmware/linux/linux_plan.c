/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "linux_plan.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)1 << 20)
#define COMMAND_BYTES 32u

void plan_refuse(const char *format, ...)
{
    char line[400];
    va_list more;

    va_start(more, format);
    vsnprintf(line, sizeof line, format, more);
    va_end(more);
    board_fail("job.json", line);
}

uint64_t plan_number(const job *of, uint32_t at, uint64_t low, uint64_t high, const char *name)
{
    uint64_t found;

    if (!json_number(&of->plan, at, low, high, &found))
        plan_refuse("%s: must be an integer from %" PRIu64 " to %" PRIu64, name, low, high);
    return found;
}

/* Looks at each place of an array, so that nothing is found to be wrong later. Returns the bytes of its places. */
static uint64_t check_places(const job *of, uint32_t places, uint32_t parts, const char *name)
{
    const json_value *values = of->plan.values;
    uint64_t bytes = 0, offset, length;
    uint32_t at;

    if (places == JSON_NONE || values[places].kind != '[')
        plan_refuse("%s: must be a list", name);
    for (at = places + 1; at < values[places].next; at = values[at].next) {
        if (values[at].kind != '[' || json_length(&of->plan, at) != parts)
            plan_refuse("%s: must have lists of %" PRIu32, name, parts);
        offset = plan_number(of, at + 1, 0, of->window, name);
        length = plan_number(of, at + parts, 0, of->window - offset, name);
        if (parts == 3 && length <= of->data_bytes)
            plan_number(of, at + 2, 0, of->data_bytes - length, name);
        else if (parts == 3)
            plan_refuse("%s: is longer than the data", name);
        bytes += length;
    }
    return bytes;
}

uint64_t loss_bytes(const job *of)
{
    return of->loss_count * (of->sums ? 16 : LOSS_HEADER + of->loss_rows * of->loss_row_bytes);
}

static void check_plan(job *of)
{
    static const char *const fields[] = {"format", "design", "window",     "stages",      "state",
                                         "losses", "watchdog", "data_bytes", "data_sha256", "about", "answers"};
    json *plan = &of->plan;
    uint32_t at, design, program;
    uint64_t commands;
    char kind[8];
    size_t each;

    for (each = 0; each < sizeof fields / sizeof *fields; each++)
        if (json_field(plan, 0, fields[each]) == JSON_NONE)
            plan_refuse("%s: is missing", fields[each]);
    if (json_length(plan, 0) != 2 * each)
        plan_refuse("has a field that is unknown");
    plan_number(of, json_field(plan, 0, "format"), 2, 2, "format");
    of->window = plan_number(of, json_field(plan, 0, "window"), 1, UINT32_MAX, "window");
    /* The sum counts bits. */
    of->data_bytes = plan_number(of, json_field(plan, 0, "data_bytes"), 0, SIZE_MAX / 8, "data_bytes");
    of->watchdog = plan_number(of, json_field(plan, 0, "watchdog"), 0, UINT32_MAX, "watchdog");
    design = json_field(plan, 0, "design");
    if (!json_text(plan, json_field(plan, 0, "data_sha256"), of->sha, sizeof of->sha))
        plan_refuse("data_sha256: must be a text");
    if (!json_text(plan, json_field(plan, design, "name"), of->name, sizeof of->name) ||
        !json_text(plan, json_field(plan, design, "table"), of->table, sizeof of->table))
        plan_refuse("design: must have a name, a table and data_bits");
    of->data_bits = plan_number(of, json_field(plan, design, "data_bits"), 1, 4096, "design.data_bits");
    of->stages = json_field(plan, 0, "stages");
    if (plan->values[of->stages].kind != '[' || !json_length(plan, of->stages))
        plan_refuse("stages: must be a list of one or more");
    for (at = of->stages + 1; at < plan->values[of->stages].next; at = plan->values[at].next) {
        check_places(of, json_field(plan, at, "writes"), 3, "stages.writes");
        of->result_bytes += check_places(of, json_field(plan, at, "reads"), 2, "stages.reads");
        program = json_field(plan, at, "program");
        if (json_length(plan, at) != 6 || program == JSON_NONE)
            plan_refuse("stages: must have writes, program and reads");
        if (plan->values[program].kind == 't')
            continue;
        if (plan->values[program].kind != '[' || json_length(plan, program) != 2)
            plan_refuse("stages.program: must be a list of 2");
        commands = plan_number(of, program + 2, 1, GRADLOOM__PROGRAM_COMMANDS__VALUE_bm, "stages.program.commands");
        if (commands * COMMAND_BYTES > of->window)
            plan_refuse("stages.program: is longer than the window");
        plan_number(of, program + 1, 0, of->window - commands * COMMAND_BYTES, "stages.program.offset");
    }
    of->answers = json_field(plan, 0, "answers");
    if (plan->values[of->answers].kind == 't')
        of->answers = JSON_NONE;
    of->losses = json_field(plan, 0, "losses");
    if (plan->values[of->losses].kind == 't') {
        of->losses = JSON_NONE;
        return;
    }
    if (!json_text(plan, json_field(plan, of->losses, "kind"), kind, sizeof kind) ||
        (strcmp(kind, "sums") && strcmp(kind, "tiles")))
        plan_refuse("losses: must be sums or tiles, with their places");
    of->sums = !strcmp(kind, "sums");
    of->loss_offset = plan_number(of, json_field(plan, of->losses, "offset"), 0, of->window, "losses.offset");
    of->loss_count = plan_number(of, json_field(plan, of->losses, "count"), 1, of->window / 16, "losses.count");
    of->loss_scale = plan_number(of, json_field(plan, of->losses, "scale"), 1, of->window, "losses.scale");
    of->loss_rows = plan_number(of, json_field(plan, of->losses, "rows"), 0, 65535, "losses.rows");
    of->loss_row_bytes = plan_number(of, json_field(plan, of->losses, "row_bytes"), 0, 65535, "losses.row_bytes");
    of->loss_bits = plan_number(of, json_field(plan, of->losses, "bits"), of->sums ? 0 : 8, 16, "losses.bits");
    if (loss_bytes(of) > of->window - of->loss_offset)
        plan_refuse("losses: must lie in the window");
}

void plan_hex(const uint8_t *digest, char *text)
{
    int at;

    for (at = 0; at < 32; at++)
        sprintf(text + 2 * at, "%02x", digest[at]);
}

FILE *plan_file(const job *of, const char *name, const char *mode, int flags)
{
    int file = openat(of->root, name, flags | O_CLOEXEC, 0666);
    FILE *made = file < 0 ? NULL : fdopen(file, mode);

    if (!made)
        board_fail(name, strerror(errno));
    return made;
}

void plan_read(job *of, const char *folder)
{
    FILE *file;
    struct stat information;
    static uint8_t piece[1 << 16];
    uint64_t size = 0;
    uint8_t digest[32];
    char found[65], *text;
    size_t length;

    of->root = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (of->root < 0)
        board_fail(folder, errno == ENOENT ? "is no job folder" : strerror(errno));
    file = plan_file(of, "job.json", "rb", O_RDONLY);
    if (fstat(fileno(file), &information) || !(text = malloc((size_t)information.st_size + 1)))
        board_fail("job.json", strerror(errno));
    length = fread(text, 1, (size_t)information.st_size, file);
    fclose(file);
    if (json_parse(&of->plan, text, length) || of->plan.values[0].kind != '{')
        plan_refuse("is no JSON object");
    check_plan(of);
    of->data = plan_file(of, "data.bin", "rb", O_RDONLY);
    sha_start(&of->sum);
    while ((length = fread(piece, 1, sizeof piece, of->data)) > 0 && (size += length) <= of->data_bytes)
        sha_bytes(&of->sum, piece, (uint32_t)length);
    sha_end(&of->sum, digest);
    plan_hex(digest, found);
    if (size != of->data_bytes || strcmp(found, of->sha))
        board_fail("data.bin", "has bytes that are not those of job.json: copy the job again");
}

void plan_begin(const job *of, board *place, const char *at)
{
    static uint8_t zeros[PIECE];
    char why[300], unlike[GL_UNLIKE_BYTES], what[140];
    uint64_t offset;

    board_open(place, at);
    if (of->window > place->size) {
        snprintf(why, sizeof why,
                 "%" PRIu64 " bytes of memory, the board has reserved %" PRIu64 ": make the buffer larger (size of "
                 "its node in the overlay, cma= on the kernel's command line)",
                 of->window, place->size);
        board_fail("the job needs", why);
    }
    if (place->config.data_bits != of->data_bits)
        snprintf(unlike, sizeof unlike, "data_bits=%" PRIu32 ", must be %" PRIu64, place->config.data_bits, of->data_bits);
    if (place->config.data_bits != of->data_bits || gl_unlike(place->table, of->table, unlike)) {
        snprintf(what, sizeof what, "the board has another design than %s", of->name);
        snprintf(why, sizeof why, "%s; run gradloom flash again", unlike);
        board_fail(what, why);
    }
    if (gl_reset(&place->device, 1000000) || gl_set_window(&place->device, place->base, (uint32_t)place->size) ||
        gl_clear_cache(&place->device, 100000000) || gl_set_watchdog(&place->device, (uint32_t)of->watchdog))
        board_fail("the machine", "does not stop what it runs");
    for (offset = 0; offset < of->window; offset += PIECE)
        board_store(place, offset, zeros, of->window - offset < PIECE ? (size_t)(of->window - offset) : PIECE);
}

void plan_data(const job *of, uint64_t from, void *to, size_t length)
{
    if (fseeko(of->data, (off_t)from, SEEK_SET) || fread(to, 1, length, of->data) != length)
        board_fail("data.bin", "cannot be read");
}

void plan_write(const job *of, board *place, uint32_t writes)
{
    static uint8_t piece[PIECE];
    const json_value *values = of->plan.values;
    uint64_t offset, from, length;
    uint32_t at;
    size_t part;

    for (at = writes + 1; at < values[writes].next; at = values[at].next) {
        offset = plan_number(of, at + 1, 0, UINT64_MAX, "writes");
        from = plan_number(of, at + 2, 0, UINT64_MAX, "writes");
        length = plan_number(of, at + 3, 0, UINT64_MAX, "writes");
        for (; length; length -= part, offset += part, from += part) {
            part = length < PIECE ? (size_t)length : PIECE;
            plan_data(of, from, piece, part);
            board_store(place, offset, piece, part);
        }
    }
}
