/* The resource manager as libcuda talks to it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../include/sim_private.h"
#include "state.h"

/* Which of the driver's forms of an allocation to use: VRAMTRACE_SIM_ABI is rm48 (default), rm32, heap or xfer. */
enum form { RM48, RM32, HEAP, XFER };

static int ctl = -1;
static uint32_t client;
static enum form form;
static uint32_t next_object = 0x5c000001;
static uint32_t freed[4096];
static int freed_count;

/* libcuda chooses handles itself and takes a freed one again at once. */
uint32_t rm_handle(void) {
    return freed_count ? freed[--freed_count] : next_object++;
}

static void give_handle(uint32_t handle) {
    if (freed_count < (int)(sizeof freed / sizeof *freed))
        freed[freed_count++] = handle;
}

int rm_open_device(const char *name) {
    char path[512];
    const char *dir = getenv(SIM_DEV);
    snprintf(path, sizeof path, "%s/%s", dir ? dir : "/dev", name);
    return open(path, O_RDWR | O_CLOEXEC);
}

int rm_ioctl(int fd, unsigned number, void *arg, size_t size) {
    if (form == XFER && number < NV_CARD_INFO) {
        struct nv_xfer xfer = {number, (uint32_t)size, (uintptr_t)arg};
        return ioctl(fd, _IOWR('F', NV_XFER, struct nv_xfer), &xfer);
    }
    return ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', number, size), arg);
}

/* What the thread's coming allocations are for; the simulated driver writes it to its truth log. */
void rm_kind(const char *kind) {
    static __thread const char *told;
    struct sim_kind k = {{0}};
    if (told == kind)
        return;
    told = kind;
    strncpy(k.kind, kind, sizeof k.kind - 1);
    ioctl(ctl, SIM_KIND, &k);
}

static enum form form_from_environment(void) {
    const char *names[] = {"rm48", "rm32", "heap", "xfer"}, *want = getenv("VRAMTRACE_SIM_ABI");
    for (int i = 0; want && i < 4; i++)
        if (!strcmp(want, names[i]))
            return (enum form)i;
    return RM48;
}

uint32_t rm_open(void) {
    uint8_t cards[2304] = {0};
    form = form_from_environment();
    ctl = rm_open_device("nvidiactl");
    if (ctl < 0)
        return NV_ERR_OPERATING_SYSTEM;
    rm_ioctl(ctl, NV_CARD_INFO, cards, sizeof cards);
    return rm_alloc(0, CLASS_ROOT, &client, NULL, 0);
}

uint32_t rm_client(void) {
    return client;
}

int rm_ctl_fd(void) {
    return ctl;
}

static uint32_t alloc(uint32_t parent, uint32_t class_, uint32_t *object, void *params, uint32_t size) {
    uint32_t root = class_ == CLASS_ROOT ? 0 : client;
    if (form == RM32) {
        struct nv_alloc32 a = {root, parent, *object, class_, (uintptr_t)params, size, 0};
        if (rm_ioctl(ctl, NV_ALLOC, &a, sizeof a))
            return NV_ERR_OPERATING_SYSTEM;
        *object = a.object;
        return a.status;
    }
    struct nv_alloc48 a = {.root = root, .parent = parent, .object = *object, .class_ = class_};
    a.params = (uintptr_t)params;
    a.params_size = size;
    if (rm_ioctl(ctl, NV_ALLOC, &a, sizeof a))
        return NV_ERR_OPERATING_SYSTEM;
    *object = a.object;
    return a.status;
}

uint32_t rm_alloc(uint32_t parent, uint32_t class_, uint32_t *object, void *params, uint32_t size) {
    uint32_t wanted = class_ == CLASS_ROOT ? 0 : rm_handle();
    *object = wanted;
    uint32_t status = alloc(parent, class_, object, params, size);
    if (status && wanted)
        give_handle(wanted);
    return status;
}

uint32_t rm_free(uint32_t parent, uint32_t object) {
    struct nv_free f = {client, parent, object, 0};
    if (rm_ioctl(ctl, NV_FREE, &f, sizeof f))
        return NV_ERR_OPERATING_SYSTEM;
    if (!f.status)
        give_handle(object);
    return f.status;
}

static uint32_t heap_alloc(struct gpu *gpu, uint32_t attr, uint64_t *bytes, uint32_t *object) {
    struct nv_heap h = {.root = client, .parent = gpu->device, .function = 2, .memory = rm_handle(), .attr = attr};
    uint32_t wanted = h.memory;
    h.size = *bytes;
    h.alignment = PAGE;
    int failed = rm_ioctl(ctl, NV_HEAP, &h, sizeof h);
    if (failed || h.status)
        give_handle(wanted);
    *object = h.memory;
    *bytes = h.size;
    return failed ? NV_ERR_OPERATING_SYSTEM : h.status;
}

/* Memory of class 0x40 or 0x3e: *bytes in, what the driver charges out. */
uint32_t rm_memory(struct gpu *gpu, uint32_t class_, uint32_t attr, uint64_t *bytes, uint32_t *object) {
    if (form == HEAP)
        return heap_alloc(gpu, attr, bytes, object);
    struct nv_memory m = {.owner = client, .flags = class_ == CLASS_VIDMEM ? 0x1c101 : 0xc001, .attr = attr};
    m.size = *bytes;
    m.alignment = class_ == CLASS_VIDMEM ? PAGE : 0;
    uint32_t status = rm_alloc(gpu->device, class_, object, &m, sizeof m);
    *bytes = m.size;
    return status;
}

/* Pages of the process that the GPU may use: no memory of its own. */
uint32_t rm_os_descriptor(struct gpu *gpu, uint64_t bytes, uint32_t *object) {
    struct nv_os_memory m = {client, gpu->device, rm_handle(), CLASS_OS_DESCRIPTOR, 0x40001010, 0, 0, bytes - 1, 0, 0, -1, 0};
    uint32_t wanted = m.object;
    int failed = rm_ioctl(gpu->fd, NV_ALLOC_MEMORY, &m, sizeof m);
    if (failed || m.status)
        give_handle(wanted);
    *object = m.object;
    return failed ? NV_ERR_OPERATING_SYSTEM : m.status;
}

uint32_t rm_control(uint32_t object, uint32_t cmd, void *params, uint32_t size) {
    struct nv_control c = {client, object, cmd, 0, (uintptr_t)params, size, 0};
    return rm_ioctl(ctl, NV_CONTROL, &c, sizeof c) ? NV_ERR_OPERATING_SYSTEM : c.status;
}

uint32_t rm_dup(uint32_t parent, uint32_t *object, uint32_t source_client, uint32_t source_object) {
    uint32_t wanted = rm_handle();
    struct nv_dup d = {client, parent, wanted, source_client, source_object, 0, 0};
    int failed = rm_ioctl(ctl, NV_DUP, &d, sizeof d);
    if (failed || d.status)
        give_handle(wanted);
    *object = d.object;
    return failed ? NV_ERR_OPERATING_SYSTEM : d.status;
}

uint32_t rm_share(uint32_t object) {
    struct nv_share s = {.client = client, .object = object, .target = client, .access_mask = 1, .type = 1};
    return rm_ioctl(ctl, NV_SHARE, &s, sizeof s) ? NV_ERR_OPERATING_SYSTEM : s.status;
}

CUresult rm_result(uint32_t status) {
    switch (status) {
    case NV_OK: return CUDA_SUCCESS;
    case NV_ERR_NO_MEMORY: return CUDA_ERROR_OUT_OF_MEMORY;
    case NV_ERR_OPERATING_SYSTEM: return CUDA_ERROR_OPERATING_SYSTEM;
    default: return CUDA_ERROR_UNKNOWN;
    }
}
