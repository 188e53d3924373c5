/* The wait of linux_board.c, with a UIO device that wakes when it is told to and a machine that is a row of words.
 * Usage: linux_wait WAKES BUSY ERROR: wakes that come before the end; 1 if the program never ends; 1 if with an error.
 * Prints what board_wait returns, how often the interrupt was unmasked and taken, and whether the machine was reset. */
#define poll wake
#define read take
#define write unmask
#include "linux_board.c"
#undef poll
#undef read
#undef write

static uint32_t words[1024];
static int wakes, endless, failing, unmasked, taken;

int wake(struct pollfd *waiting, nfds_t count, int timeout)
{
    (void)waiting, (void)count;
    if (wakes-- > 0)
        return 1; /* an interrupt, but STATUS is busy */
    if (endless) {
        usleep(1000u * (unsigned)timeout);
        return 0;
    }
    words[offsetof(gradloom_t, STATUS) / 4] =
        failing ? GRADLOOM__STATUS__ERROR_bm : GRADLOOM__STATUS__DONE_bm;
    return 1;
}

ssize_t take(int file, void *data, size_t size)
{
    (void)file;
    memset(data, 0, size);
    taken++;
    return (ssize_t)size;
}

ssize_t unmask(int file, const void *data, size_t size)
{
    uint32_t one;

    (void)file;
    memcpy(&one, data, sizeof one);
    unmasked += one == 1;
    return (ssize_t)size;
}

int main(int argc, char **argv)
{
    board board = {.uio = 3, .socket = -1};
    int status;

    if (argc != 4)
        return 2;
    wakes = atoi(argv[1]);
    endless = atoi(argv[2]);
    failing = atoi(argv[3]);
    gl_init_mmio(&board.device, words);
    words[offsetof(gradloom_t, STATUS) / 4] = GRADLOOM__STATUS__BUSY_bm;
    status = board_wait(&board, 200);
    printf("%d %d %d %d\n", status, unmasked, taken,
           (words[offsetof(gradloom_t, CONTROL) / 4] & GRADLOOM__CONTROL__RESET_bm) != 0);
    return 0;
}
