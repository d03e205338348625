/* Arrays and mipmapped arrays: memory with a shape. */
#include <stdlib.h>

#include "state.h"

struct array {
    CUdeviceptr address;
};

enum { ARRAY3D_SPARSE = 0x40, ARRAY3D_DEFERRED = 0x80 };

/* Bytes of an element, 0 for a format that the simulation does not know. */
static size_t element_bytes(int format, unsigned channels) {
    size_t bytes;
    switch (format) {
    case 0x01: case 0x08: bytes = 1; break;             /* (un)signed int 8 */
    case 0x02: case 0x09: case 0x10: bytes = 2; break;  /* int 16, half */
    case 0x03: case 0x0a: case 0x20: bytes = 4; break;  /* int 32, float */
    default: return 0;
    }
    return channels == 1 || channels == 2 || channels == 4 ? bytes * channels : 0;
}

static size_t extent(size_t n) {
    return n ? n : 1;
}

static size_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned level) {
    size_t w = extent(d->Width >> level), h = extent(d->Height >> level), depth = extent(d->Depth >> level);
    return w * h * depth * element_bytes(d->Format, d->NumChannels);
}

static CUresult create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels) {
    WITH_CONTEXT(ctx);
    size_t bytes = 0;
    if (!out || !d || !d->Width || !levels || !element_bytes(d->Format, d->NumChannels))
        return CUDA_ERROR_INVALID_VALUE;
    struct array *array = calloc(1, sizeof *array);
    for (unsigned level = 0; level < levels; level++)
        bytes += level_bytes(d, level);
    /* Sparse and deferred arrays get their memory through cuMemMapArrayAsync. */
    if (!(d->Flags & (ARRAY3D_SPARSE | ARRAY3D_DEFERRED))) {
        CUresult result = memory_alloc(ctx, &array->address, bytes);
        if (result) {
            free(array);
            return result;
        }
    }
    *out = array;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUarray array) {
    READY;
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = array->address ? memory_free(array->address) : CUDA_SUCCESS;
    free(array);
    return result;
}

API CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *d) {
    if (!d)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR full = {d->Width, d->Height, 0, d->Format, d->NumChannels, 0};
    return create(out, &full, 1);
}

API CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d) {
    return create(out, d, 1);
}

API CUresult cuArrayDestroy(CUarray array) {
    return destroy(array);
}

API CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels) {
    return create(out, d, levels);
}

API CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
    return destroy(array);
}
