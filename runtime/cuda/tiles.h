/* Tensor maps of TMA: they describe boxes of a tensor that the device copies. Kernels take them by value, after their
 * other arguments. */
#ifndef NACRE_CUDA_TILES_H
#define NACRE_CUDA_TILES_H

#include "session.h"

enum { NACRE_MAPS = 2, NACRE_MOST_AXES = 5 };

/* The parameters of a map, as generated code computes them: the sizes of the axes from the contiguous one on, the first
 * two sizes of its boxes, and the strides in bytes of the axes after the first. */
typedef struct nacre_tile_map {
    int64_t base, axes, type, box[2];
    uint64_t sizes[NACRE_MOST_AXES], steps[NACRE_MOST_AXES - 1];
} nacre_tile_map;

/* An encoded map; its format belongs to the driver. */
typedef struct nacre_tensor_map {
    _Alignas(64) unsigned char bytes[128];
} nacre_tensor_map;

/* Encodes the maps of a launch. Returns whether the call continues. */
int nacre_make_maps(nacre_device_session *session, const nacre_kernel_image *image, void **arguments,
                    nacre_tensor_map *maps);

#endif
