/* Handles of cuMemCreate in file descriptors, over a unix socket. */
#define _GNU_SOURCE
#include <sys/socket.h>
#include <unistd.h>

#include "scenario.h"

enum { BYTES = 82 << 20 };

static void send_fd(int socket, int fd) {
    char byte = 'f';
    struct iovec io = {&byte, 1};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    control.header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    EXPECT(1, sendmsg(socket, &message, 0));
}

static int receive_fd(int socket) {
    char byte;
    int fd;
    struct iovec io = {&byte, 1};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    EXPECT(1, recvmsg(socket, &message, MSG_CMSG_CLOEXEC));
    memcpy(&fd, CMSG_DATA(&control.header), sizeof fd);
    return fd;
}

static void say(int socket, char word) {
    EXPECT(1, write(socket, &word, 1));
}

static void hear(int socket, char word) {
    char heard = 0;
    EXPECT(1, read(socket, &heard, 1));
    EXPECT(word, heard);
}

/* The importer: maps what it gets; its argument says what it does with it, and the number of its socket. */
void child_share(const char *argument) {
    int socket = atoi(argument + 1), fd = receive_fd(socket);
    CUmemGenericAllocationHandle handle;
    CUmemAccessDesc access = read_write(0);
    CUdeviceptr address;
    OK(cudaFree(0));
    OK(CU(cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    OK(CU(cuMemAddressReserve)(&address, BYTES, 0, 0, 0));
    OK(CU(cuMemMap)(address, BYTES, 0, handle, 0));
    OK(CU(cuMemSetAccess)(address, BYTES, &access, 1));
    if (*argument != 'f')
        close(fd);
    mark("child imported", 0, CONTEXT);
    say(socket, 'i');
    hear(socket, 'g');
    if (*argument == 'k')
        mark("child inherited", 0, CONTEXT + BYTES);
    OK(CU(cuMemUnmap)(address, BYTES));
    OK(CU(cuMemRelease)(handle));
    mark("child released", 0, CONTEXT);
    if (*argument == 'f') {
        /* The file alone keeps the memory; it is nobody's until it is imported again. */
        say(socket, 'r');
        hear(socket, 'g');
        OK(CU(cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        mark("child imported again", 0, CONTEXT);
        /* Closing the file hands the memory to its only importer. */
        close(fd);
        mark("child inherited", 0, CONTEXT + BYTES);
        OK(CU(cuMemRelease)(handle));
        mark("child released again", 0, CONTEXT);
    }
}

struct pair {
    CUmemGenericAllocationHandle handle;
    int socket, child, fd;
};

static struct pair export_to_child(char what) {
    int sockets[2];
    char argument[16];
    struct pair p;
    CUmemAllocationProp prop = device_memory(0, true);
    OK(cudaFree(0));
    OK(CU(cuMemCreate)(&p.handle, BYTES, &prop, 0));
    OK(CU(cuMemExportToShareableHandle)(&p.fd, p.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    mark("exported", 0, CONTEXT + BYTES);
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    snprintf(argument, sizeof argument, "%c%d", what, sockets[1]);
    close(start("child_share", argument, &p.child));
    close(sockets[1]);
    p.socket = sockets[0];
    send_fd(p.socket, p.fd);
    close(p.fd);
    hear(p.socket, 'i');
    return p;
}

void share_closed_first(void) {
    struct pair p = export_to_child('c');
    say(p.socket, 'g');
    OK(finish(p.child));
    mark("importer gone", 0, CONTEXT + BYTES);
    OK(CU(cuMemRelease)(p.handle));
    mark("released", 0, CONTEXT);
}

void share_owner_first(void) {
    struct pair p = export_to_child('k');
    OK(CU(cuMemRelease)(p.handle));
    mark("released while imported", 0, CONTEXT);
    say(p.socket, 'g');
    OK(finish(p.child));
    mark("end", 0, CONTEXT);
}

void share_file_last(void) {
    struct pair p = export_to_child('f');
    say(p.socket, 'g');
    hear(p.socket, 'r');
    OK(CU(cuMemRelease)(p.handle));
    mark("released while in a file", 0, CONTEXT);
    say(p.socket, 'g');
    OK(finish(p.child));
    mark("end", 0, CONTEXT);
}
