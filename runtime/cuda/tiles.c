/* Encodes tensor maps; see tiles.h. */
#include "tiles.h"

/* Options of a map: no interleaving; a swizzle of 16-byte pieces within 128-byte rows, which avoids bank conflicts in
 * shared memory; reads of 256 bytes into the L2 cache; zeros for elements out of bounds. */
enum { NOT_INTERLEAVED = 0, SWIZZLE_128_BYTES = 3, PROMOTE_256_BYTES = 3, FILL_ZEROS = 0 };

static int make_map(nacre_device_session *session, const nacre_tile_map *from, nacre_tensor_map *map) {
    const nacre_driver *driver = session->program->driver;
    const uint32_t box[NACRE_MOST_AXES] = {(uint32_t)from->box[0], (uint32_t)from->box[1], 1, 1, 1};
    const uint32_t distances[NACRE_MOST_AXES] = {1, 1, 1, 1, 1};
    const int result =
        driver->make_map(map, (int)from->type, (uint32_t)from->axes, (void *)(uintptr_t)from->base, from->sizes,
                         from->steps, box, distances, NOT_INTERLEAVED, SWIZZLE_128_BYTES, PROMOTE_256_BYTES, FILL_ZEROS);
    return nacre_went_well(session, result, "describe a tensor");
}

int nacre_make_maps(nacre_device_session *session, const nacre_kernel_image *image, void **arguments,
                    nacre_tensor_map *maps) {
    nacre_tile_map words[NACRE_MAPS];
    if (session->program->driver->make_map == NULL) {
        session->status = nacre_fail(NACRE_DEVICE_FAILED, "the CUDA driver is too old, it lacks `cuTensorMapEncodeTiled`");
        return 0;
    }
    image->read(arguments, (int64_t *)words);
    for (int i = 0; i < NACRE_MAPS; i++)
        if (!make_map(session, &words[i], &maps[i])) return 0;
    return 1;
}
