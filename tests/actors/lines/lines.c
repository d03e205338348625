/* Writes lines in every way that C programs do, all of which a trace must keep: each holds "avail mem=".
 * Ends with the number of breakpoints in the first bytes of write, as its exit code. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void put(int fd, const char *text)
{
    if (write(fd, text, strlen(text)) < 0)
        exit(99);
}

static void *thread(void *unused)
{
    put(1, "avail mem=9.00 GB of a thread\n");
    return unused;
}

/* A child that stays a little before it writes: what one writes in its first moment may go unseen. */
static void child(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        usleep(1500000);
        put(2, "avail mem=10.00 GB of a child\n");
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

/* posix_spawn: the child shares our memory until it executes. */
static void program(void)
{
    char *argv[] = {"echo", "avail mem=11.00 GB of a program", NULL};
    pid_t pid;
    if (posix_spawn(&pid, "/bin/echo", NULL, NULL, argv, environ))
        exit(99);
    waitpid(pid, NULL, 0);
}

static void vectors(void)
{
    struct iovec three[] = {{"avail mem=", 10}, {"8.00 GB by", 10}, {" writev\n", 8}};
    if (writev(2, three, 3) != 28)
        exit(99);
}

static void buffered(void)
{
    printf("avail mem=1.00 GB by printf\n");
    puts("avail mem=2.00 GB by puts");
    fflush(stdout);
    fprintf(stderr, "avail mem=%d.00 GB by fprintf\n", 3);
    dprintf(1, "avail mem=%d.00 GB by dprintf\n", 4);
    errno = ENOENT;
    perror("avail mem=5.00 GB by perror");
}

static void pieces(void)
{
    put(1, "avail mem=6.00 ");
    put(2, "avail mem=7.00 GB between\n");
    put(1, "GB in pieces\n");
    put(2, "\rprogress avail mem=1.00 GB");
    put(2, "\rprogress avail mem=2.00 GB");
    put(2, "\rprogress avail mem=3.00 GB\n");
}

/* A line of `bytes`, in one write; its end tells whether all of it was seen. */
static void big(size_t bytes)
{
    char *text = malloc(bytes + 1);
    memset(text, 'x', bytes);
    memcpy(text, "avail mem=12.00 GB ", 19);
    memcpy(text + bytes - 5, " end\n", 6);
    put(1, text);
    free(text);
}

static int breakpoints(void)
{
    const unsigned char *code = (const unsigned char *)(void *)write;
    int found = 0;
    for (int i = 0; i < 16; i++)
        found += code[i] == 0xcc;
    return found;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        big(strtoul(argv[1], NULL, 10));
        return 0;
    }
    pthread_t other;
    buffered();
    pieces();
    vectors();
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, NULL);
    child();
    program();
    big(20000);
    /* Standard output goes where standard error goes. */
    dup2(2, 1);
    put(1, "avail mem=13.00 GB by a duplicate\n");
    /* Fails, and nobody reads it. */
    if (write(1, (void *)(uintptr_t)(argc * 8), 5) >= 0)
        return 99;
    put(1, "avail mem=14.00 GB without an end");
    return breakpoints();
}
