/* Memory objects of a context, each with its range of GPU addresses. */
#include <stdlib.h>

#include "state.h"

/*
 * Takes memory and maps it. A failure for want of memory is tried once more, as libcuda was seen to do. NULL: failed,
 * ctx->error says why.
 */
struct segment *segment_new(struct context *ctx, const char *kind, uint32_t class_, uint32_t attr, uint64_t bytes) {
    uint32_t handle;
    /* No smaller piece of video memory was ever seen. */
    if (class_ == CLASS_VIDMEM && bytes < PAGE)
        bytes = PAGE;
    uint64_t charged = bytes;
    rm_kind(kind);
    uint32_t status = rm_memory(ctx->gpu, class_, attr, &charged, &handle);
    if (status == NV_ERR_NO_MEMORY) {
        charged = bytes;
        status = rm_memory(ctx->gpu, class_, attr, &charged, &handle);
    }
    if (status) {
        ctx->error = rm_result(status);
        return NULL;
    }
    struct segment *s = calloc(1, sizeof *s);
    *s = (struct segment){ctx->segments, ctx, handle, va_take(charged), charged, bytes};
    ctx->segments = s;
    uvm_create(s->va, s->bytes);
    uvm_map(ctx->gpu, s->va, s->bytes, 0, handle);
    return s;
}

/* Tells the peer-to-peer object of an address range that others may map, as libcuda does for user allocations. */
void segment_register(struct segment *segment, bool in) {
    uint8_t params[32] = {0};
    if (in)
        rm_control(segment->ctx->gpu->p2p, CTRL_P2P_REGISTER_VA, params, 32);
    else
        rm_control(segment->ctx->gpu->p2p, CTRL_P2P_UNREGISTER_VA, params, 4);
}

void segment_free(struct segment *segment) {
    struct context *ctx = segment->ctx;
    for (struct segment **s = &ctx->segments; *s; s = &(*s)->next) {
        if (*s != segment)
            continue;
        *s = segment->next;
        break;
    }
    uvm_free(segment->va, segment->bytes);
    rm_free(ctx->gpu->device, segment->handle);
    va_give(segment->va, segment->bytes);
    free(segment);
}
