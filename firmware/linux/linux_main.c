/* SPDX-License-Identifier: Apache-2.0
 * Runs a program on a gradloom accelerator under Linux, or a job folder: registers over UIO, buffer from u-dma-buf.
 *
 *   gradloom_run PROGRAM.bin COMMANDS [OUTPUT.bin OFFSET LENGTH]
 *   gradloom_run [--at SOCKET] job FOLDER
 *   gradloom_run [--at SOCKET] answer [--tokens N] FOLDER [TOKEN...]
 *
 * PROGRAM.bin is the window's content from its first byte on, the program first. Prints the counters, and
 * writes LENGTH bytes at OFFSET of the window to OUTPUT.bin.
 * FOLDER is what gradloom finetune --job has written; result and log go there, as those of the agent in Python do. The
 * run begins again where it was interrupted. Of gradloom infer --job, it answers a prompt of tokens, or without any the
 * one that it was written with, by N tokens at most, which are printed as they come. SOCKET: a simulation in place of the
 * board (gradloom.sim.run.board).
 * Exit code: 0 done, 1 stopped with an error, 2 bad use, or a job that is refused or stops.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "linux_answer.h"
#include "linux_board.h"
#include "linux_job.h"

#define TIMEOUT_MS 60000

int main(int argc, char **argv)
{
    char name[GL_NAME_BYTES];
    struct stat information;
    static board here;
    gl_counters counters;
    gl_health health;
    gl_error error;
    uint64_t commands, offset = 0, length = 0;
    FILE *file;
    const char *at = NULL;
    int status, phase, verb = 1;

    if (argc > 3 && strcmp(argv[1], "--at") == 0) {
        at = argv[2];
        verb = 3;
    }
    if (argc == verb + 2 && strcmp(argv[verb], "job") == 0)
        return job_run(argv[verb + 1], at);
    if (argc > verb && strcmp(argv[verb], "answer") == 0)
        return answer_run(at, argc - verb - 1, argv + verb + 1);
    if (at || (argc != 3 && argc != 6)) {
        fprintf(stderr,
                "usage: %s PROGRAM.bin COMMANDS [OUTPUT.bin OFFSET LENGTH]\n       %s [--at SOCKET] job FOLDER\n"
                "       %s [--at SOCKET] answer [--tokens N] FOLDER [TOKEN...]\n",
                argv[0], argv[0], argv[0]);
        return 2;
    }
    commands = board_number(argv[2], 0, GRADLOOM__PROGRAM_COMMANDS__VALUE_bm, "COMMANDS");
    file = fopen(argv[1], "rb");
    if (!file || fstat(fileno(file), &information))
        board_fail(argv[1], strerror(errno));

    board_lock(NULL);
    board_open(&here, NULL);
    if ((uint64_t)information.st_size > here.size)
        board_fail(argv[1], "larger than the buffer");
    if (argc == 6) {
        offset = board_number(argv[4], 0, here.size, "OFFSET");
        length = board_number(argv[5], 0, here.size - offset, "LENGTH");
    }
    if (fread(here.window, 1, (size_t)information.st_size, file) != (size_t)information.st_size)
        board_fail(argv[1], "cannot be read");
    fclose(file);
    printf("machine    %s\n", here.table);
    if (gl_set_window(&here.device, here.base, (uint32_t)here.size) != GL_OK)
        board_fail("window", "refused: is a program running?");

    gl_acknowledge(&here.device);
    gl_enable_interrupt(&here.device, 1);
    if (gl_start(&here.device, 0, (uint32_t)commands) != GL_OK)
        board_fail("COMMANDS", "refused");
    status = board_wait(&here, TIMEOUT_MS);
    gl_enable_interrupt(&here.device, 0);
    gl_acknowledge(&here.device);
    if (status == GL_TIMEOUT) {
        gl_reset(&here.device, 1000000);
        board_fail("program", "did not end in a minute; stopped");
    }

    gl_get_counters(&here.device, &counters);
    gl_get_health(&here.device, &health);
    printf("cycles     %" PRIu64 "\n", counters.cycles);
    for (phase = 0; phase < (int)here.config.phases && phase < GL_PHASES; phase++) {
        gl_phase_name(here.table, (uint32_t)phase, name);
        printf("  %-11s %" PRIu32 "\n", name, counters.phase_cycles[phase]);
    }
    printf("commands   %" PRIu32 " done, %" PRIu32 " dropped\n", counters.commands_done,
           counters.commands_dropped);
    printf("cache      %" PRIu32 " hits, %" PRIu32 " misses\n", counters.cache_hits, counters.cache_misses);
    printf("beats      %" PRIu32 " read, %" PRIu32 " written\n", counters.read_beats, counters.write_beats);
    printf("health     %" PRIu32 " saturated, %" PRIu32 " underflowed, gradient norm %" PRIu64 "\n",
           health.saturated, health.underflowed, health.gradient_norm);
    if (status == GL_FAILED) {
        gl_get_error(&here.device, &error);
        fprintf(stderr, "gradloom: %s at command %" PRIu32 ", address 0x%" PRIx64 ": %s\n",
                gl_error_name(error.code), error.command, error.address, gl_error_text(error.code));
        return 1;
    }
    if (argc == 6) {
        file = fopen(argv[3], "wb");
        if (!file || fwrite(here.window + offset, 1, length, file) != length || fclose(file))
            board_fail(argv[3], strerror(errno));
    }
    return 0;
}
