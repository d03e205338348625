"""Allocates GPU memory by every route that PyTorch and the CUDA APIs offer, and says at each step what nvidia-smi says.

One line a step on standard output: `step NAME t=CLOCK_MONOTONIC_NS smi=MIB`, then one line a child process. The exit
code is 3, so that a tracer that changes it is found out. Needs one NVIDIA GPU, PyTorch and nvidia-smi.
"""

import ctypes
import os
import socket
import subprocess
import sys
import threading
import time

import torch

MIB = 1 << 20


def smi(pid=None):
    """Memory of a process as nvidia-smi prints it, MiB; 0 when it is not listed."""
    text = subprocess.run(
        ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
        check=True, capture_output=True, text=True).stdout
    rows = dict(line.split(", ") for line in text.splitlines() if line.strip())
    return int(rows.get(str(pid or os.getpid()), 0))


def step(name):
    torch.cuda.synchronize()
    time.sleep(0.15)  # long enough for a sample of the tracer's own
    used = smi()
    print(f"step {name} t={time.clock_gettime_ns(time.CLOCK_MONOTONIC)} smi={used}", flush=True)
    time.sleep(0.05)


def libraries():
    paths = {line.split()[-1] for line in open("/proc/self/maps") if "/lib" in line}
    pick = lambda part: next(p for p in sorted(paths) if part in os.path.basename(p))
    return ctypes.CDLL(pick("libcudart.so")), ctypes.CDLL(pick("libcuda.so"))


def must(result, what):
    assert result == 0, f"{what}: {result}"


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Prop(ctypes.Structure):  # CUmemAllocationProp
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location),
                ("win32", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


class Access(ctypes.Structure):  # CUmemAccessDesc
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


class Handle(ctypes.Structure):  # cudaIpcMemHandle_t
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


def vmm(cuda, size=20 * MIB):
    """cuMemCreate, map twice, unmap and release in the order that keeps the memory longest."""
    prop = Prop(type=1, location=Location(1, 0))
    handle, address = ctypes.c_uint64(), ctypes.c_uint64()
    must(cuda.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(prop), ctypes.c_uint64(0)), "create")
    step("vmm_created")
    must(cuda.cuMemAddressReserve(ctypes.byref(address), ctypes.c_size_t(2 * size), ctypes.c_size_t(0),
                                  ctypes.c_uint64(0), ctypes.c_uint64(0)), "reserve")
    access = Access(Location(1, 0), 3)
    for at in (address.value, address.value + size):
        must(cuda.cuMemMap(ctypes.c_uint64(at), ctypes.c_size_t(size), ctypes.c_size_t(0), handle, ctypes.c_uint64(0)), "map")
        must(cuda.cuMemSetAccess(ctypes.c_uint64(at), ctypes.c_size_t(size), ctypes.byref(access), ctypes.c_size_t(1)), "access")
    step("vmm_mapped_twice")
    must(cuda.cuMemRelease(handle), "release")
    step("vmm_released_still_mapped")
    must(cuda.cuMemUnmap(address, ctypes.c_size_t(2 * size)), "unmap")
    must(cuda.cuMemAddressFree(address, ctypes.c_size_t(2 * size)), "address free")
    step("vmm_unmapped")


def ipc(runtime, pointer):
    handle = Handle()
    must(runtime.cudaIpcGetMemHandle(ctypes.byref(handle), pointer), "ipc handle")
    child = subprocess.Popen([sys.executable, __file__, "import", bytes(handle.bytes).hex()],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    print("child", child.pid, child.stdout.readline().strip(), flush=True)
    step("ipc_open_in_child")
    child.stdin.close()
    must(child.wait(), "child")
    step("ipc_child_ended")


def importer(text):
    torch.zeros(1, device="cuda")
    runtime, _ = libraries()
    handle, pointer = Handle((ctypes.c_ubyte * 64).from_buffer_copy(bytes.fromhex(text))), ctypes.c_void_p()
    torch.cuda.synchronize()
    before = smi()
    runtime.cudaIpcOpenMemHandle.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
    must(runtime.cudaIpcOpenMemHandle(ctypes.byref(pointer), handle, 1), "ipc open")
    time.sleep(0.2)
    print(f"before={before} open={smi()} t={time.clock_gettime_ns(time.CLOCK_MONOTONIC)}", flush=True)
    sys.stdin.read()
    time.sleep(0.2)


def share(cuda, size=64 * MIB):
    """A VMM handle, exported as a descriptor and mapped by a child; the owner lets go first."""
    prop = Prop(type=1, handles=1, location=Location(1, 0))
    handle, fd = ctypes.c_uint64(), ctypes.c_int()
    must(cuda.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(prop), ctypes.c_uint64(0)), "create")
    must(cuda.cuMemExportToShareableHandle(ctypes.byref(fd), handle, ctypes.c_int(1), ctypes.c_uint64(0)), "export")
    step("vmm_exported")
    ours, theirs = socket.socketpair()
    child = subprocess.Popen([sys.executable, __file__, "share", str(theirs.fileno()), str(size)],
                             pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, text=True)
    socket.send_fds(ours, [b"x"], [fd.value])
    os.close(fd.value)
    print("child", child.pid, child.stdout.readline().strip(), flush=True)
    step("vmm_mapped_by_child")
    must(cuda.cuMemRelease(handle), "release")
    step("vmm_released_by_owner")
    ours.send(b"x")
    print("child", child.pid, child.stdout.readline().strip(), flush=True)
    must(child.wait(), "child")
    step("vmm_child_ended")


def sharer(fileno, size):
    torch.zeros(1, device="cuda")
    _, cuda = libraries()
    channel = socket.socket(fileno=fileno)
    _, fds, _, _ = socket.recv_fds(channel, 1, 1)
    handle, address = ctypes.c_uint64(), ctypes.c_uint64()
    must(cuda.cuMemImportFromShareableHandle(ctypes.byref(handle), ctypes.c_void_p(fds[0]), ctypes.c_int(1)), "import")
    os.close(fds[0])
    must(cuda.cuMemAddressReserve(ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_size_t(0),
                                  ctypes.c_uint64(0), ctypes.c_uint64(0)), "reserve")
    must(cuda.cuMemMap(address, ctypes.c_size_t(size), ctypes.c_size_t(0), handle, ctypes.c_uint64(0)), "map")
    time.sleep(0.2)
    print(f"mapped={smi()} t={time.clock_gettime_ns(time.CLOCK_MONOTONIC)}", flush=True)
    channel.recv(1)
    time.sleep(0.2)
    print(f"inherited={smi()} t={time.clock_gettime_ns(time.CLOCK_MONOTONIC)}", flush=True)
    time.sleep(0.2)


def arrays_and_nodes(runtime, cuda):
    """An array, and memory nodes of a graph: physical at the first launch, given back by a trim."""
    descriptor = (ctypes.c_uint64 * 5)(1024, 1024, 16, 0x20 | (4 << 32), 0)  # W, H, D, CU_AD_FORMAT_FLOAT | 4 channels
    array = ctypes.c_void_p()
    must(cuda.cuArray3DCreate_v2(ctypes.byref(array), ctypes.byref(descriptor)), "array")
    step("array_256_mib")
    must(cuda.cuArrayDestroy(array), "array destroy")
    step("array_destroyed")
    stream, graph, executable, pointer = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    must(runtime.cudaStreamCreate(ctypes.byref(stream)), "stream")
    must(runtime.cudaStreamBeginCapture(stream, 2), "begin capture")
    must(runtime.cudaMallocAsync(ctypes.byref(pointer), ctypes.c_size_t(70 * MIB), stream), "node")
    must(runtime.cudaMemsetAsync(pointer, 0, ctypes.c_size_t(70 * MIB), stream), "memset")
    must(runtime.cudaFreeAsync(pointer, stream), "free node")
    must(runtime.cudaStreamEndCapture(stream, ctypes.byref(graph)), "end capture")
    must(runtime.cudaGraphInstantiate(ctypes.byref(executable), graph, ctypes.c_uint64(0)), "instantiate")
    step("graph_nodes_instantiated")
    must(runtime.cudaGraphLaunch(executable, stream), "launch")
    step("graph_nodes_launched")
    must(runtime.cudaGraphExecDestroy(executable), "destroy")
    must(runtime.cudaDeviceGraphMemTrim(0), "trim")
    step("graph_nodes_trimmed")


def contexts_and_threads(runtime, cuda):
    context, previous = ctypes.c_void_p(), ctypes.c_void_p()
    must(cuda.cuCtxGetCurrent(ctypes.byref(previous)), "current")
    must(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0), "context")
    used = ctypes.c_uint64()
    must(cuda.cuMemAlloc_v2(ctypes.byref(used), ctypes.c_size_t(10 * MIB)), "alloc")
    step("second_context")
    must(cuda.cuCtxDestroy_v2(context), "destroy")
    must(cuda.cuCtxSetCurrent(previous), "set current")
    step("second_context_destroyed")

    def work():
        for _ in range(20):
            p = ctypes.c_void_p()
            must(runtime.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(3 * MIB)), "malloc")
            must(runtime.cudaFree(p), "free")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    step("eight_threads")


def graph():
    x = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            y = x @ x
    step("side_stream")
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for _ in range(200):
            y = x @ x + 1
    step("graph_captured")
    captured.replay()
    step("graph_replayed")
    return captured, x, y


def main():
    step_names = []
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    step("context")
    torch.cuda.mem_get_info()
    tensor = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
    step("tensor_100_mib")
    small = torch.ones(1000, device="cuda") * 2
    step("small_kernel")
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    b = a @ a
    step("matmul")
    keep = graph()
    runtime, cuda = libraries()
    pointer, pitch, other = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_void_p()
    must(runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(123456789)), "malloc")
    must(runtime.cudaMallocPitch(ctypes.byref(other), ctypes.byref(pitch), ctypes.c_size_t(5000), ctypes.c_size_t(3000)), "pitch")
    managed = ctypes.c_void_p()
    must(runtime.cudaMallocManaged(ctypes.byref(managed), ctypes.c_size_t(4 * MIB), 1), "managed")
    host = ctypes.c_void_p()
    must(runtime.cudaHostAlloc(ctypes.byref(host), ctypes.c_size_t(32 * MIB), 0), "host")
    step("cuda_malloc_pitch_managed_host")
    ipc(runtime, pointer)
    huge = ctypes.c_void_p()
    assert runtime.cudaMalloc(ctypes.byref(huge), ctypes.c_size_t(4 << 40)) == 2
    runtime.cudaGetLastError()
    step("cuda_malloc_4_tib_failed")
    must(runtime.cudaFree(pointer), "free")
    must(runtime.cudaFree(other), "free")
    must(runtime.cudaFree(managed), "free")
    step("cuda_freed")
    stream_pointer = ctypes.c_void_p()
    must(runtime.cudaMallocAsync(ctypes.byref(stream_pointer), ctypes.c_size_t(50 * MIB), None), "async")
    step("malloc_async")
    must(runtime.cudaFreeAsync(stream_pointer, None), "free async")
    step("free_async_synchronised")
    pool = ctypes.c_void_p()
    must(runtime.cudaDeviceGetDefaultMemPool(ctypes.byref(pool), 0), "pool")
    must(runtime.cudaMemPoolTrimTo(pool, ctypes.c_size_t(0)), "trim")
    step("pool_trimmed")
    vmm(cuda)
    share(cuda)
    arrays_and_nodes(runtime, cuda)
    contexts_and_threads(runtime, cuda)
    must(runtime.cudaDeviceSetLimit(0, ctypes.c_size_t(16384)), "stack limit")
    torch.ones(10, device="cuda")
    step("stack_limit_16_kib")
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    expandable = torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")
    step("expandable_segments")
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(4)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(64, 2048, device="cuda")).sum().backward()
    optimizer.step()
    step("training_step")
    del tensor, small, a, b, keep, expandable, model, optimizer, step_names
    torch.cuda.empty_cache()
    step("emptied")
    sys.exit(3)


if __name__ == "__main__":
    if sys.argv[1:2] == ["import"]:
        importer(sys.argv[2])
    elif sys.argv[1:2] == ["share"]:
        sharer(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
