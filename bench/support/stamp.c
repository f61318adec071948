/* The trivial static worker: notes the moment of its first instruction, then waits to be ended.
 *
 *   stamp FILE [deaf|exit]     deaf: ignores SIGTERM; exit: ends at once with 0
 *
 * Appends one line, in one write: "GENERATION RANK PID NANOSECONDS" (CLOCK_MONOTONIC). Holdfast numbers generations
 * from 1; torchrun counts restarts from 0; without either the generation is 0.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long number(const char *name, long missing)
{
    const char *text = getenv(name);
    return text ? atol(text) : missing;
}

int main(int argc, char **argv)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (argc < 2)
        return 2;
    const char *how = argc > 2 ? argv[2] : "";
    if (!strcmp(how, "deaf"))
        signal(SIGTERM, SIG_IGN);
    long generation = number("HOLDFAST_GENERATION", number("TORCHELASTIC_RESTART_COUNT", -1) + 1);
    char line[128];
    int length = snprintf(line, sizeof line, "%ld %ld %d %lld\n", generation, number("RANK", number("SLURM_PROCID", 0)), (int)getpid(),
                          now.tv_sec * 1000000000LL + now.tv_nsec);
    int file = open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0 || write(file, line, length) != length)
        return 3;
    close(file);
    while (strcmp(how, "exit"))
        pause();
    return 0;
}
