/* First process of a virtual machine of `cargo xtask kernels`: loads the modules in /modules in order of their names, makes
 * the host's file system (virtiofs, read-only but for one directory) the root, runs one program there, and turns the
 * machine off. Arguments: the tag of the file system, the directory that may be written, the program. Linked statically:
 * nothing else is in the initial file system. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void turn_off(void)
{
    sync();
    /* With qemu's -no-reboot this ends the machine, whether or not it has ACPI. */
    reboot(RB_AUTOBOOT);
    _exit(1);
}

static void must(const char *what, int result)
{
    if (result == 0)
        return;
    printf("vm: %s: %s\n", what, strerror(errno));
    turn_off();
}

static void load_modules(void)
{
    struct dirent **names;
    int count = scandir("/modules", &names, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char path[512];
        if (names[i]->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/modules/%s", names[i]->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        /* Built in as well: fine. */
        if (syscall(SYS_finit_module, fd, "", 0) != 0 && errno != EEXIST)
            printf("vm: %s: %s\n", path, strerror(errno));
        close(fd);
    }
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc != 4)
        turn_off();
    const char *tag = argv[1], *writable = argv[2], *program = argv[3];
    load_modules();
    must("mkdir", mkdir("/host", 0755));
    must("mount of the host's files", mount(tag, "/host", "virtiofs", 0, NULL));
    must("chdir", chdir("/host"));
    /* What switch_root(8) does: user namespaces are refused to whoever is in a changed root. */
    must("mount --move", mount(".", "/", NULL, MS_MOVE, NULL));
    must("chroot", chroot("."));
    must("mount of what may be written", mount(writable, writable, NULL, MS_BIND, NULL));
    must("mount -o remount,ro", mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
    const struct { const char *what, *at; } kernels[] = {
        {"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/run"},
    };
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        must(kernels[i].at, mount(kernels[i].what, kernels[i].at, kernels[i].what, 0, NULL));
    pid_t child = fork();
    if (child == 0) {
        setsid();
        execl("/bin/sh", "sh", program, (char *)NULL);
        printf("vm: %s: %s\n", program, strerror(errno));
        _exit(127);
    }
    /* Whoever has lost its parent is waited for here too. */
    int status;
    for (pid_t ended = 0; ended != child;)
        ended = wait(&status);
    printf("vm: ended %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    turn_off();
}
