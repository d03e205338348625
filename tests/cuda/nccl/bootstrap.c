/* Ranks find each other by the unique id, as NCCL's do by the address in it: here the name of an abstract socket. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <stddef.h>
#include <sys/un.h>
#include <unistd.h>

#include "nccl.h"

#define TRIES 60000 /* of a millisecond each */

static socklen_t address_of(struct sockaddr_un *address, const char *name) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "vramtrace-%s", name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static bool move(int fd, void *bytes, size_t count, bool out) {
    for (char *at = bytes; count;) {
        ssize_t n = out ? send(fd, at, count, MSG_NOSIGNAL) : recv(fd, at, count, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        count -= (size_t)n;
    }
    return true;
}

static ncclResult_t accept_all(ncclComm_t comm, int listener) {
    for (int i = 1; i < comm->ranks; i++) {
        uint32_t rank;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 || !move(fd, &rank, sizeof rank, false) || rank >= (uint32_t)comm->ranks)
            return ncclSystemError;
        comm->sockets[rank] = fd;
    }
    return ncclSuccess;
}

static ncclResult_t listen_for(ncclComm_t comm, const struct sockaddr_un *address, socklen_t length) {
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0)
        return ncclSystemError;
    bool heard = !bind(listener, (const struct sockaddr *)address, length) && !listen(listener, 64);
    ncclResult_t result = heard ? accept_all(comm, listener) : ncclSystemError;
    close(listener);
    return result;
}

ncclResult_t bootstrap_connect(ncclComm_t comm, const char *name) {
    struct sockaddr_un address;
    socklen_t length = address_of(&address, name);
    uint32_t rank = (uint32_t)comm->rank;
    if (!rank)
        return listen_for(comm, &address, length);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    comm->sockets[0] = fd;
    for (int i = 0; fd >= 0 && i < TRIES; i++) {
        if (!connect(fd, (struct sockaddr *)&address, length))
            return move(fd, &rank, sizeof rank, true) ? ncclSuccess : ncclSystemError;
        usleep(1000);
    }
    return ncclSystemError;
}

ncclResult_t bootstrap_gather(ncclComm_t comm, const void *mine, size_t bytes, void *all) {
    bool moved = true;
    if (comm->rank) {
        moved = move(comm->sockets[0], (void *)mine, bytes, true) &&
                move(comm->sockets[0], all, bytes * (size_t)comm->ranks, false);
        return moved ? ncclSuccess : ncclSystemError;
    }
    memcpy(all, mine, bytes);
    for (int rank = 1; moved && rank < comm->ranks; rank++)
        moved = move(comm->sockets[rank], (char *)all + bytes * (size_t)rank, bytes, false);
    for (int rank = 1; moved && rank < comm->ranks; rank++)
        moved = move(comm->sockets[rank], all, bytes * (size_t)comm->ranks, true);
    return moved ? ncclSuccess : ncclSystemError;
}

void bootstrap_close(ncclComm_t comm) {
    int count = comm->rank ? 1 : comm->ranks;
    for (int i = 0; i < count; i++)
        if (comm->sockets[i] > 0)
            close(comm->sockets[i]);
}
