/* Tensor maps, by which a device copies boxes of a tensor. Kernels take them by value, after their other arguments. */
#ifndef NACRE_CUDA_TILES_H
#define NACRE_CUDA_TILES_H

#include "session.h"

enum { NACRE_MAPS = 2, NACRE_MOST_AXES = 5 };

/* The numbers of a map, as generated code returns them: axes from the fastest one, the first two sizes of its boxes, and
 * the bytes from one position to the next along the axes after the first. */
typedef struct nacre_tile_map {
    int64_t base, axes, type, box[2];
    uint64_t sizes[NACRE_MOST_AXES], steps[NACRE_MOST_AXES - 1];
} nacre_tile_map;

/* A map as the driver writes it. */
typedef struct nacre_tensor_map {
    _Alignas(64) unsigned char bytes[128];
} nacre_tensor_map;

/* Makes the maps of a launch. Returns whether the call goes on. */
int nacre_make_maps(nacre_device_session *session, const nacre_kernel_image *image, void **arguments,
                    nacre_tensor_map *maps);

#endif
