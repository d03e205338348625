/*
 * NVIDIA's kernel interface as far as the simulation uses it, written down anew from the layouts of driver 580.95.05
 * (nvos.h, nv-ioctl.h, uvm_ioctl.h, ctrl0000unix.h, ctrl0000gpu.h, ctrl2080fb.h).
 */
#pragma once
#include <stdint.h>
#include <sys/ioctl.h>

struct nv_free { /* NVOS00 */
    uint32_t root, parent, object, status;
};

struct nv_alloc48 { /* NVOS64 */
    uint32_t root, parent, object, class_;
    uint64_t params, rights;
    uint32_t params_size, flags, status, pad;
};

struct nv_alloc32 { /* NVOS21 */
    uint32_t root, parent, object, class_;
    uint64_t params;
    uint32_t params_size, status;
};

struct nv_memory { /* NV_MEMORY_ALLOCATION_PARAMS */
    uint32_t owner, type, flags, width, height, pitch, attr, attr2, format, compr_covg, zcull_covg, pad0;
    uint64_t range_lo, range_hi, size, alignment, offset, limit, address;
    uint32_t ctag_offset, va_space, internal_flags, tag, numa_node, pad1;
};

struct nv_device { /* NV0080_ALLOC_PARAMETERS */
    uint32_t device_id, client_share, target_client, target_device, flags, pad;
    uint64_t va_space_size, va_start, va_limit;
    uint32_t va_mode, pad1;
};

struct nv_dup { /* NVOS55 */
    uint32_t client, parent, object, source_client, source_object, flags, status;
};

struct nv_share { /* NVOS57 */
    uint32_t client, object, target, access_mask;
    uint16_t type;
    uint8_t action, pad;
    uint32_t status;
};

struct nv_control { /* NVOS54 */
    uint32_t client, object, cmd, flags;
    uint64_t params;
    uint32_t params_size, status;
};

struct nv_heap { /* NVOS32, function ALLOC_SIZE; FREE uses memory alone */
    uint32_t root, parent, function, va_space;
    int16_t ivc_heap, pad0;
    uint32_t status;
    uint64_t total, free;
    uint32_t owner, memory, type, flags, attr, format, compr_covg, zcull_covg, partition_stride, width, height, pad1;
    uint64_t size, alignment, offset, limit, address, range_begin, range_end;
    uint32_t attr2, ctag_offset;
    int32_t numa_node;
    uint32_t pad2[7];
};

struct nv_os_memory { /* nv_ioctl_nvos02_parameters_with_fd */
    uint32_t root, parent, object, class_, flags, pad0;
    uint64_t memory, limit;
    uint32_t status, pad1;
    int32_t fd;
    uint32_t pad2;
};

struct nv_xfer {
    uint32_t cmd, size;
    uint64_t ptr;
};

struct nv_export { /* NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS */
    int32_t fd;
    uint32_t device;
    uint16_t max_objects;
    uint8_t metadata[64];
    uint32_t objects[512];
    uint16_t num_objects, index;
};

struct nv_import { /* NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS */
    int32_t fd;
    uint32_t parent;
    uint32_t objects[128];
    uint8_t object_types[128];
    uint16_t num_objects, index;
};

struct nv_export_info { /* NV0000_CTRL_OS_UNIX_GET_EXPORT_OBJECT_INFO_PARAMS */
    int32_t fd;
    uint32_t device_instance, gpu_instance_id;
    uint16_t max_objects;
    uint8_t metadata[64];
};

struct nv_gpu_info { /* NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS */
    uint32_t gpu_id, flags, device_instance, subdevice_instance, sli_status, board_id, gpu_instance;
    int32_t numa_id;
};

struct nv_fb_info { /* NV2080_CTRL_FB_GET_INFO_V2_PARAMS */
    uint32_t count;
    struct {
        uint32_t index, data;
    } list[128];
};

struct uvm_register_gpu {
    uint8_t uuid[16];
    uint8_t numa_enabled;
    int32_t numa_node, ctrl_fd;
    uint32_t client, smc_part_ref, status;
};

struct uvm_register_vaspace {
    uint8_t uuid[16];
    int32_t ctrl_fd;
    uint32_t client, va_space, status;
};

struct uvm_range { /* CREATE_EXTERNAL_RANGE, FREE */
    uint64_t base, length;
    uint32_t status;
};

struct uvm_unmap {
    uint64_t base, length;
    uint8_t uuid[16];
    uint32_t status;
};

struct uvm_map { /* UVM_MAP_EXTERNAL_ALLOCATION, since 550.54.14 */
    uint64_t base, length, offset;
    struct {
        uint8_t uuid[16];
        uint32_t mapping_type, caching_type, format_type, element_bits, compression_type;
    } gpus[256];
    uint64_t gpu_count;
    int32_t ctrl_fd;
    uint32_t client, memory, status;
};

#define CHECK_SIZE(type, size) _Static_assert(sizeof(struct type) == (size), #type)
CHECK_SIZE(nv_free, 16);
CHECK_SIZE(nv_alloc48, 48);
CHECK_SIZE(nv_alloc32, 32);
CHECK_SIZE(nv_memory, 128);
CHECK_SIZE(nv_device, 56);
CHECK_SIZE(nv_dup, 28);
CHECK_SIZE(nv_share, 24);
CHECK_SIZE(nv_control, 32);
CHECK_SIZE(nv_heap, 184);
CHECK_SIZE(nv_os_memory, 56);
CHECK_SIZE(nv_export, 0x850);
CHECK_SIZE(nv_import, 0x28c);
CHECK_SIZE(nv_export_info, 0x50);
CHECK_SIZE(nv_fb_info, 0x404);
CHECK_SIZE(uvm_register_gpu, 40);
CHECK_SIZE(uvm_register_vaspace, 32);
CHECK_SIZE(uvm_range, 24);
CHECK_SIZE(uvm_unmap, 40);
CHECK_SIZE(uvm_map, 9264);

enum {
    NV_ALLOC_MEMORY = 0x27,
    NV_FREE = 0x29,
    NV_CONTROL = 0x2a,
    NV_ALLOC = 0x2b,
    NV_DUP = 0x34,
    NV_SHARE = 0x35,
    NV_HEAP = 0x4a,
    NV_CARD_INFO = 200,
    NV_REGISTER_FD = 201,
    NV_XFER = 211,
    NV_ATTACH_GPUS = 212,
};

enum {
    UVM_CREATE_RANGE_GROUP = 23,
    UVM_REGISTER_GPU_VASPACE = 25,
    UVM_MAP_EXTERNAL = 33,
    UVM_FREE = 34,
    UVM_REGISTER_GPU = 37,
    UVM_UNMAP_EXTERNAL = 66,
    UVM_CREATE_EXTERNAL_RANGE = 73,
    UVM_INITIALIZE = 0x30000001,
};

enum {
    CLASS_ROOT = 0,
    CLASS_SYSMEM = 0x3e,
    CLASS_VIDMEM = 0x40,
    CLASS_OS_DESCRIPTOR = 0x71,
    CLASS_DEVICE = 0x80,
    CLASS_FABRIC = 0xf8,
    CLASS_MULTICAST = 0xfd, /* NV_MEMORY_MULTICAST_FABRIC */
    CLASS_SUBDEVICE = 0x2080,
    CLASS_P2P = 0x503c,
    CLASS_VIRTUAL = 0x50a0,
    CLASS_CTXSHARE = 0x9067,
    CLASS_VASPACE = 0x90f1,
    CLASS_CHANNEL_GROUP = 0xa06c,
    CLASS_CHANNEL = 0xc86f, /* HOPPER_CHANNEL_GPFIFO_A */
    CLASS_COPY = 0xc8b5,    /* HOPPER_DMA_COPY_A */
    CLASS_COMPUTE = 0xcbc0, /* HOPPER_COMPUTE_A */
};

enum {
    CTRL_GPU_GET_ID_INFO_V2 = 0x205,
    CTRL_GET_EXPORT_OBJECT_INFO = 0x3d08,
    CTRL_EXPORT_OBJECTS_TO_FD = 0x3d0b,
    CTRL_IMPORT_OBJECTS_FROM_FD = 0x3d0c,
    CTRL_FB_GET_INFO_V2 = 0x20801303,
    CTRL_P2P_REGISTER_VA = 0x503c0104, /* NV503C_CTRL_CMD_REGISTER_VA_SPACE kin: sent with every mapping */
    CTRL_P2P_UNREGISTER_VA = 0x503c0105,
    FB_HEAP_SIZE = 0x9,
    FB_HEAP_FREE = 0x16,
};

enum { NV_OK = 0, NV_ERR_NO_MEMORY = 0x51, NV_ERR_OPERATING_SYSTEM = 0x59 };

/* attr words an H200's libcuda was seen to use: cudaMalloc and most of the rest; cuMemCreate and pools (exportable). */
enum { ATTR_PLAIN = 0x18000000, ATTR_EXPORTABLE = 0x38000000, ATTR_SYSMEM = 0x3a000000 };
