/* Graphs. Instantiation takes 2 MiB; memory nodes become physical at the first upload or launch. */
#include <stdlib.h>
#include <string.h>

#include "state.h"

struct node {
    struct node *next;
    enum { NODE_ALLOC, NODE_FREE, NODE_KERNEL } type;
    uint64_t va, bytes;
    CUfunction function;
};

struct graph {
    struct node *nodes;
};

struct exec {
    struct exec *next;
    struct context *ctx;
    struct segment *commands;
    struct node *nodes; /* a copy */
};

struct graph_piece {
    struct graph_piece *next;
    struct segment *segment;
};

/* Addresses of memory nodes: fixed when the node is made, whether or not memory is behind them. */
struct graph_block {
    struct graph_block *next;
    uint64_t va, bytes;
    bool live;
};

static struct exec *execs;
static struct graph_block *graph_blocks;

static struct graph_block *block_at(CUdeviceptr address) {
    struct graph_block *b = graph_blocks;
    while (b && b->va != address)
        b = b->next;
    return b;
}

bool graph_owns(CUdeviceptr address) {
    struct graph_block *b = block_at(address);
    return b && b->live;
}

CUresult graph_free(CUdeviceptr address) {
    block_at(address)->live = false;
    return CUDA_SUCCESS;
}

static struct node *append(CUgraph graph, struct node node) {
    struct node **at = &graph->nodes;
    while (*at)
        at = &(*at)->next;
    *at = malloc(sizeof node);
    **at = node;
    return *at;
}

CUresult graph_add_alloc(CUgraph graph, CUdeviceptr *out, uint64_t bytes) {
    struct graph_block *b = calloc(1, sizeof *b);
    *b = (struct graph_block){graph_blocks, va_take(bytes), bytes, false};
    graph_blocks = b;
    *out = b->va;
    append(graph, (struct node){.type = NODE_ALLOC, .va = b->va, .bytes = bytes});
    return CUDA_SUCCESS;
}

CUresult graph_add_free(CUgraph graph, CUdeviceptr address) {
    if (!block_at(address))
        return CUDA_ERROR_INVALID_VALUE;
    append(graph, (struct node){.type = NODE_FREE, .va = address});
    return CUDA_SUCCESS;
}

void graph_add_kernel(CUgraph graph, CUfunction function) {
    append(graph, (struct node){.type = NODE_KERNEL, .function = function});
}

static struct node *copy(const struct node *from) {
    struct graph g = {NULL};
    for (; from; from = from->next) {
        struct node *made = append(&g, *from);
        made->next = NULL;
    }
    return g.nodes;
}

static void drop(struct node *nodes) {
    while (nodes) {
        struct node *next = nodes->next;
        free(nodes);
        nodes = next;
    }
}

/* Memory for all of a graph's nodes. Graphs share it: what one left behind serves the next. */
static CUresult back(struct exec *exec) {
    struct context *ctx = exec->ctx;
    uint64_t need = 0;
    for (struct node *n = exec->nodes; n; n = n->next)
        need += n->type == NODE_ALLOC ? ROUND_UP(n->bytes, PAGE) : 0;
    if (need > ctx->graph_bytes) {
        struct segment *segment =
            segment_new(ctx, "graph_exec", CLASS_VIDMEM, ATTR_EXPORTABLE, need - ctx->graph_bytes);
        if (!segment)
            return ctx->error;
        struct graph_piece *piece = malloc(sizeof *piece);
        *piece = (struct graph_piece){ctx->graph_pieces, segment};
        ctx->graph_pieces = piece;
        ctx->graph_bytes = need;
    }
    return CUDA_SUCCESS;
}

static void forget_pieces(struct context *ctx, bool release) {
    while (ctx->graph_pieces) {
        struct graph_piece *piece = ctx->graph_pieces;
        ctx->graph_pieces = piece->next;
        if (release)
            segment_free(piece->segment);
        free(piece);
    }
    ctx->graph_bytes = 0;
}

void graphs_forget(struct context *ctx) {
    forget_pieces(ctx, false);
    for (struct exec *e = execs; e; e = e->next)
        if (e->ctx == ctx) {
            e->ctx = NULL;
            e->commands = NULL;
        }
}

API CUresult cuGraphCreate(CUgraph *out, unsigned flags) {
    READY;
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *out = calloc(1, sizeof **out);
    return CUDA_SUCCESS;
}

API CUresult cuGraphDestroy(CUgraph graph) {
    READY;
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    drop(graph->nodes);
    free(graph);
    return CUDA_SUCCESS;
}

static CUgraphNode last(CUgraph graph) {
    struct node *n = graph->nodes;
    while (n && n->next)
        n = n->next;
    return n;
}

API CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *deps, size_t count,
                                    CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    (void)deps, (void)count;
    READY;
    if (!out || !graph || !params || !params->bytesize)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = graph_add_alloc(graph, &params->dptr, params->bytesize);
    *out = last(graph);
    return result;
}

API CUresult cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *deps, size_t count,
                                   CUdeviceptr address) {
    (void)deps, (void)count;
    READY;
    if (!out || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = graph_add_free(graph, address);
    *out = last(graph);
    return result;
}

API CUresult cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *deps, size_t count,
                                     const CUDA_KERNEL_NODE_PARAMS *params) {
    (void)deps, (void)count;
    READY;
    if (!out || !graph || !params || !params->func)
        return CUDA_ERROR_INVALID_VALUE;
    graph_add_kernel(graph, params->func);
    *out = last(graph);
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags) {
    WITH_CONTEXT(ctx);
    if (!out || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    struct segment *commands = segment_new(ctx, "graph_exec", CLASS_VIDMEM, ATTR_PLAIN, PAGE);
    if (!commands)
        return ctx->error;
    struct exec *e = malloc(sizeof *e);
    *e = (struct exec){execs, ctx, commands, copy(graph->nodes)};
    *out = execs = e;
    return flags & CU_GRAPH_INSTANTIATE_UPLOAD ? back(e) : CUDA_SUCCESS;
}

API CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags) {
    return instantiate(out, graph, flags);
}

API CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *error, char *log, size_t bytes) {
    (void)error, (void)log, (void)bytes;
    return instantiate(out, graph, 0);
}

API CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    return params ? instantiate(out, graph, params->flags) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
    (void)stream;
    READY;
    return exec && exec->ctx ? back(exec) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    READY;
    if (!exec || !exec->ctx)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = back(exec);
    for (struct node *n = exec->nodes; n && !result; n = n->next) {
        struct graph_block *b = n->type == NODE_KERNEL ? NULL : block_at(n->va);
        if (b)
            b->live = n->type == NODE_ALLOC;
        else if (n->type == NODE_KERNEL)
            result = launch_prepare(exec->ctx, n->function, stream);
    }
    return result;
}

API CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
    return cuGraphUpload(exec, stream);
}

API CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    return cuGraphLaunch(exec, stream);
}

API CUresult cuGraphExecDestroy(CUgraphExec exec) {
    READY;
    for (struct exec **at = &execs; exec && *at; at = &(*at)->next) {
        if (*at != exec)
            continue;
        *at = exec->next;
        if (exec->commands)
            segment_free(exec->commands);
        drop(exec->nodes);
        free(exec);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* Gives back the memory of graphs, unless an allocation that a launch left behind is still in use. */
API CUresult cuDeviceGraphMemTrim(CUdevice device) {
    READY;
    if (device < 0 || device >= sim_gpu_count || !sim_gpus[device].primary)
        return CUDA_ERROR_INVALID_DEVICE;
    for (struct graph_block *b = graph_blocks; b; b = b->next)
        if (b->live)
            return CUDA_SUCCESS;
    forget_pieces(sim_gpus[device].primary, true);
    return CUDA_SUCCESS;
}

/* 0 used, 2 reserved (the high-water marks 1 and 3 are the same here). */
API CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value) {
    READY;
    uint64_t v = 0;
    if (device < 0 || device >= sim_gpu_count)
        return CUDA_ERROR_INVALID_DEVICE;
    if (attribute >= 2)
        v = sim_gpus[device].primary ? sim_gpus[device].primary->graph_bytes : 0;
    for (struct graph_block *b = graph_blocks; attribute < 2 && b; b = b->next)
        v += b->live ? b->bytes : 0;
    memcpy(value, &v, sizeof v);
    return CUDA_SUCCESS;
}
