/* cuMemCreate, cuMemMap and kin: bytes live from creation until neither reference nor mapping is left. */
#include "scenario.h"

static CUmemGenericAllocationHandle create(size_t bytes) {
    CUmemAllocationProp prop = device_memory(0, false);
    CUmemGenericAllocationHandle handle;
    OK(CU(cuMemCreate)(&handle, bytes, &prop, 0));
    return handle;
}

static CUdeviceptr reserve(size_t bytes) {
    CUdeviceptr address;
    OK(CU(cuMemAddressReserve)(&address, bytes, 0, 0, 0));
    return address;
}

static void map(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle handle) {
    CUmemAccessDesc access = read_write(0);
    OK(CU(cuMemMap)(address, bytes, 0, handle, 0));
    OK(CU(cuMemSetAccess)(address, bytes, &access, 1));
}

void vmm(void) {
    OK(cudaFree(0));
    CUmemGenericAllocationHandle handle = create(82 * MIB);
    mark("created", 0, CONTEXT + 82 * MIB);
    CUdeviceptr address = reserve(1 * GIB);
    mark("reserved", 0, CONTEXT + 82 * MIB);
    map(address, 82 * MIB, handle);
    mark("mapped", 0, CONTEXT + 82 * MIB);
    EXPECT(CUDA_ERROR_INVALID_VALUE, CU(cuMemMap)(address, 2 * MIB, 0, handle, 0));
    OK(CU(cuMemUnmap)(address, 82 * MIB));
    mark("unmapped", 0, CONTEXT + 82 * MIB);
    OK(CU(cuMemRelease)(handle));
    OK(CU(cuMemAddressFree)(address, 1 * GIB));
    mark("released", 0, CONTEXT);
}

void vmm_orders(void) {
    OK(cudaFree(0));
    CUdeviceptr address = reserve(256 * MIB);
    /* Released while mapped: the mapping keeps it. */
    CUmemGenericAllocationHandle first = create(20 * MIB);
    map(address, 20 * MIB, first);
    OK(CU(cuMemRelease)(first));
    mark("released first", 0, CONTEXT + 20 * MIB);
    OK(CU(cuMemUnmap)(address, 20 * MIB));
    mark("then unmapped", 0, CONTEXT);
    /* Mapped twice: still one piece of memory. */
    CUmemGenericAllocationHandle second = create(40 * MIB);
    map(address, 40 * MIB, second);
    map(address + 64 * MIB, 40 * MIB, second);
    mark("mapped twice", 0, CONTEXT + 40 * MIB);
    OK(CU(cuMemUnmap)(address, 40 * MIB));
    OK(CU(cuMemRelease)(second));
    mark("one mapping left", 0, CONTEXT + 40 * MIB);
    OK(CU(cuMemUnmap)(address + 64 * MIB, 40 * MIB));
    mark("none left", 0, CONTEXT);
    /* Never mapped. */
    CUmemGenericAllocationHandle third = create(2 * MIB);
    mark("unmapped handle", 0, CONTEXT + 2 * MIB);
    OK(CU(cuMemRelease)(third));
    mark("end", 0, CONTEXT);
}

void vmm_retain(void) {
    OK(cudaFree(0));
    CUmemGenericAllocationHandle handle = create(10 * MIB), again;
    CUdeviceptr address = reserve(10 * MIB);
    void *plain;
    map(address, 10 * MIB, handle);
    OK(CU(cuMemRetainAllocationHandle)(&again, (void *)(address + 4 * MIB)));
    EXPECT(1, again == handle);
    OK(CU(cuMemRelease)(handle));
    OK(CU(cuMemUnmap)(address, 10 * MIB));
    mark("retained", 0, CONTEXT + 10 * MIB);
    OK(CU(cuMemRelease)(again));
    mark("released", 0, CONTEXT);
    OK(cudaMalloc(&plain, 2 * MIB));
    EXPECT(CUDA_ERROR_INVALID_VALUE, CU(cuMemRetainAllocationHandle)(&again, plain));
    mark("end", 0, CONTEXT + 2 * MIB);
}

/* PyTorch's expandable segments: one wide range of addresses, 20 MiB handles mapped to its front, ends unmapped. */
void expandable_segments(void) {
    enum { PIECE = 20, N = 16 };
    CUmemGenericAllocationHandle handles[N];
    CUmemAccessDesc access = read_write(0);
    OK(cudaFree(0));
    CUdeviceptr base = reserve(4 * GIB);
    for (int i = 0; i < N; i++)
        handles[i] = create(PIECE * MIB);
    for (uint64_t i = 0; i < N; i++)
        OK(CU(cuMemMap)(base + i * PIECE * MIB, PIECE * MIB, 0, handles[i], 0));
    OK(CU(cuMemSetAccess)(base, N * PIECE * MIB, &access, 1));
    mark("grown", 0, CONTEXT + N * PIECE * MIB);
    for (uint64_t i = N / 2; i < N; i++) {
        OK(CU(cuMemUnmap)(base + i * PIECE * MIB, PIECE * MIB));
        OK(CU(cuMemRelease)(handles[i]));
    }
    mark("shrunk", 0, CONTEXT + N / 2 * PIECE * MIB);
    handles[N / 2] = create(PIECE * MIB);
    map(base + N / 2 * PIECE * MIB, PIECE * MIB, handles[N / 2]);
    mark("grown again", 0, CONTEXT + (N / 2 + 1) * PIECE * MIB);
}
