/*
 * torch_memory_saver's hook (csrc/core.cpp, 0.0.10): memory of cuMemCreate behind addresses that stay while it is paused.
 * Freed while it is paused, it makes no request.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "../include/vmm.h"

#define API __attribute__((visibility("default")))
#define PAGE ((size_t)2 << 20)
#define MOST 64

static struct piece {
    CUdeviceptr address;
    size_t bytes;
    int device;
    char tag[16];
    bool paused;
    CUmemGenericAllocationHandle handle;
} pieces[MOST];
static _Thread_local char current[16] = "default";
static _Thread_local bool is_region;

static CUresult fill(struct piece *piece) {
    CUmemAllocationProp prop = {.type = 1, .location = {1, piece->device}};
    CUmemAccessDesc access = {{1, piece->device}, 3};
    CUresult result = CU(cuMemCreate)(&piece->handle, piece->bytes, &prop, 0);
    if (!result)
        result = CU(cuMemMap)(piece->address, piece->bytes, 0, piece->handle, 0);
    return result ? result : CU(cuMemSetAccess)(piece->address, piece->bytes, &access, 1);
}

static void empty(struct piece *piece) {
    CU(cuMemUnmap)(piece->address, piece->bytes);
    CU(cuMemRelease)(piece->handle);
}

API void tms_set_current_tag(const char *tag) {
    strncpy(current, tag, sizeof current - 1);
}

API void tms_set_interesting_region(bool is) {
    is_region = is;
}

API void *tms_torch_malloc(ptrdiff_t bytes, int device, void *stream) {
    (void)stream;
    if (!is_region)
        exit(1);
    for (struct piece *piece = pieces; piece < pieces + MOST; piece++) {
        if (piece->bytes)
            continue;
        *piece = (struct piece){.bytes = ((size_t)bytes + PAGE - 1) / PAGE * PAGE, .device = device};
        memcpy(piece->tag, current, sizeof current);
        if (!CU(cuMemAddressReserve)(&piece->address, piece->bytes, 0, 0, 0) && !fill(piece))
            return (void *)piece->address;
        piece->bytes = 0;
        return NULL;
    }
    return NULL;
}

API void tms_torch_free(void *address, ptrdiff_t bytes, int device, void *stream) {
    (void)bytes, (void)device, (void)stream;
    for (struct piece *piece = pieces; piece < pieces + MOST; piece++)
        if (piece->bytes && piece->address == (CUdeviceptr)address) {
            if (!piece->paused)
                empty(piece);
            CU(cuMemAddressFree)(piece->address, piece->bytes);
            piece->bytes = 0;
        }
}

/* Pieces of a tag, or of every tag. One that is paused cannot be paused, nor one that is there resumed: the program ends. */
static bool is_meant(const struct piece *piece, const char *tag, bool paused) {
    bool is = piece->bytes && (!tag || !strcmp(tag, piece->tag));
    if (is && piece->paused != paused)
        exit(1);
    return is;
}

API void tms_pause(const char *tag) {
    for (struct piece *piece = pieces; piece < pieces + MOST; piece++)
        if (is_meant(piece, tag, false)) {
            empty(piece);
            piece->paused = true;
        }
}

API void tms_resume(const char *tag) {
    for (struct piece *piece = pieces; piece < pieces + MOST; piece++)
        if (is_meant(piece, tag, true))
            piece->paused = fill(piece) != 0;
}
