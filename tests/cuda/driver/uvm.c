/* Unified memory's driver: ranges of GPU addresses and what they map to. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "state.h"

static int fd = -1;

/*
 * UVM's request numbers carry no size, so the simulated driver (FUSE) sees the number alone and answers 0; the real one
 * writes the status, the last word of each struct. Here the caller of the system call does.
 */
#define UVM(number, arg) ((arg)->status = ioctl(fd, (number), (arg)) ? NV_ERR_OPERATING_SYSTEM : NV_OK)

void uvm_initialize(void) {
    struct {
        uint64_t flags;
        uint32_t status;
    } init = {0, 0};
    fd = rm_open_device("nvidia-uvm");
    UVM(UVM_INITIALIZE, &init);
}

void uvm_register_gpu(struct gpu *gpu) {
    struct uvm_register_gpu r = {.ctrl_fd = -1};
    memcpy(r.uuid, gpu->uuid, sizeof r.uuid);
    UVM(UVM_REGISTER_GPU, &r);
}

void uvm_register_vaspace(struct gpu *gpu) {
    struct uvm_register_vaspace r = {.ctrl_fd = rm_ctl_fd(), .client = rm_client(), .va_space = gpu->va_space};
    memcpy(r.uuid, gpu->uuid, sizeof r.uuid);
    UVM(UVM_REGISTER_GPU_VASPACE, &r);
}

void uvm_range_group(void) {
    struct {
        uint64_t id;
        uint32_t status;
    } group = {0, 0};
    UVM(UVM_CREATE_RANGE_GROUP, &group);
}

void uvm_create(uint64_t base, uint64_t length) {
    struct uvm_range r = {base, length, 0};
    UVM(UVM_CREATE_EXTERNAL_RANGE, &r);
}

void uvm_map(struct gpu *gpu, uint64_t base, uint64_t length, uint64_t offset, uint32_t memory) {
    struct uvm_map m = {.base = base, .length = length, .offset = offset};
    memcpy(m.gpus[0].uuid, gpu->uuid, sizeof gpu->uuid);
    m.gpus[0].mapping_type = 1;
    m.gpu_count = 1;
    m.ctrl_fd = rm_ctl_fd();
    m.client = rm_client();
    m.memory = memory;
    UVM(UVM_MAP_EXTERNAL, &m);
}

void uvm_unmap(struct gpu *gpu, uint64_t base, uint64_t length) {
    struct uvm_unmap u = {.base = base, .length = length};
    memcpy(u.uuid, gpu->uuid, sizeof u.uuid);
    UVM(UVM_UNMAP_EXTERNAL, &u);
}

void uvm_free(uint64_t base, uint64_t length) {
    struct uvm_range r = {base, length, 0};
    UVM(UVM_FREE, &r);
}

/* Addresses: a freed range goes to the next request of its size, as the real libcuda reuses addresses at once. */
static struct hole {
    struct hole *next;
    uint64_t base, bytes;
} *holes;
static uint64_t next_address = 0x7e0000000000;

uint64_t va_take(uint64_t bytes) {
    bytes = ROUND_UP(bytes, PAGE);
    for (struct hole **h = &holes; *h; h = &(*h)->next) {
        if ((*h)->bytes != bytes)
            continue;
        struct hole *found = *h;
        uint64_t base = found->base;
        *h = found->next;
        free(found);
        return base;
    }
    uint64_t base = next_address;
    next_address += bytes;
    return base;
}

void va_give(uint64_t base, uint64_t bytes) {
    struct hole *h = malloc(sizeof *h);
    *h = (struct hole){holes, base, ROUND_UP(bytes, PAGE)};
    holes = h;
}
