/* A little nvidia-smi: one line a process and GPU, `gpu pid bytes`, and one a GPU, `gpu total reserved free used`. */
#include <stdio.h>
#include <string.h>

typedef struct device *nvmlDevice_t;
struct memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out);
int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct memory *out);
int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, struct process *out);

int main(void) {
    unsigned gpus = 0;
    if (nvmlInit_v2() || nvmlDeviceGetCount_v2(&gpus))
        return 1;
    for (unsigned g = 0; g < gpus; g++) {
        struct process list[512];
        struct memory m = {.version = sizeof m | 2 << 24};
        unsigned count = 512;
        nvmlDevice_t device;
        if (nvmlDeviceGetHandleByIndex_v2(g, &device) || nvmlDeviceGetMemoryInfo_v2(device, &m) ||
            nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list))
            return 1;
        printf("gpu %u %llu %llu %llu %llu\n", g, m.total, m.reserved, m.free, m.used);
        for (unsigned i = 0; i < count; i++)
            printf("process %u %u %llu\n", g, list[i].pid, list[i].bytes);
    }
    return nvmlShutdown();
}
