// A program with the runtime linked statically (nvcc's default): nothing but libcuda to probe.
//   nvcc -o static_runtime static_runtime.cu && ./static_runtime
// Prints the lines of torch_routes.py; exit code 5.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <cuda_runtime.h>
#include <unistd.h>

static void step(const char *name) {
    cudaDeviceSynchronize();
    usleep(150000);
    char command[200];
    snprintf(command, sizeof command,
             "nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits | awk -F', ' '$1==%d{print $2}'",
             getpid());
    FILE *smi = popen(command, "r");
    long used = 0;
    if (smi && fscanf(smi, "%ld", &used) != 1) used = 0;
    if (smi) pclose(smi);
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    printf("step %s t=%lld smi=%ld\n", name, now.tv_sec * 1000000000LL + now.tv_nsec, used);
    fflush(stdout);
    usleep(50000);
}

static void must(cudaError_t result) {
    if (result != cudaSuccess) {
        fprintf(stderr, "%s\n", cudaGetErrorString(result));
        exit(1);
    }
}

__global__ void spill(int *out, int n) {
    // A large frame: the launch makes the driver grow local memory.
    volatile int local[20000];
    for (int i = 0; i < n; ++i) local[i % 20000] = i;
    if (n < 0) *out = local[7];
}

int main() {
    void *small[100], *large;
    must(cudaFree(0));
    step("context");
    for (void *&p : small) must(cudaMalloc(&p, 512));
    step("hundred_small");
    must(cudaMalloc(&large, 300u << 20));
    step("300_mib");
    spill<<<1, 1>>>(static_cast<int *>(large), 10);
    must(cudaDeviceSynchronize());
    step("local_memory");
    must(cudaFree(large));
    for (void *p : small) must(cudaFree(p));
    step("freed");
    must(cudaDeviceReset());
    step("reset");
    must(cudaFree(0));
    step("context_again");
    return 5;
}
