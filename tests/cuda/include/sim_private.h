/* Requests that only the simulated driver knows (tests/src/driver/private.rs). Magic 'V'; the real driver's is 'F'. */
#pragma once
#include <stdint.h>
#include <sys/ioctl.h>

struct sim_kind {
    char kind[32];
};

struct sim_mark {
    char name[48];
    uint32_t gpu;
    uint32_t has_expected;
    uint64_t expected;
};

struct sim_gpu {
    uint32_t index; /* in */
    uint32_t count;
    uint32_t instance;
    uint32_t gpu_id;
    uint32_t pci_bus;
    uint32_t pad;
    uint64_t total;
    uint64_t reserved;
    uint64_t free;
    uint8_t uuid[16];
};

struct sim_processes {
    uint32_t index; /* in */
    uint32_t count;
    struct {
        uint32_t pid;
        uint32_t pad;
        uint64_t bytes;
    } list[512];
};

#define SIM_KIND _IOW('V', 1, struct sim_kind)
#define SIM_MARK _IOW('V', 2, struct sim_mark)
#define SIM_GPU _IOWR('V', 3, struct sim_gpu)
#define SIM_PROCESSES _IOWR('V', 4, struct sim_processes)

/* Directory of the simulated device files. */
#define SIM_DEV "VRAMTRACE_SIM_DEV"
