/* Records of kernels for a GPU that generated code and tables contain. Not part of the ABI. */
#ifndef NACRE_CUDA_CODE_H
#define NACRE_CUDA_CODE_H

#include "../internal.h"

/* A kernel: text of PTX, its name there, the threads of each block, and its bytes of shared memory beside those
 * that the text states. `read` writes the numbers of its tensor maps, which follow the arguments; NULL if it has none. */
typedef struct nacre_kernel_image {
    const char *ptx, *name;
    int64_t threads, shared;
    void (*read)(void **arguments, int64_t *words);
    int64_t arguments;
} nacre_kernel_image;

/* All kernels of a level, in the order of their numbers. */
typedef struct nacre_images {
    int64_t count;
    const nacre_kernel_image *kernels[];
} nacre_images;

/* Code for one architecture: its compute capability, times ten, and whether it is for that one alone. */
typedef struct nacre_device_level {
    const char *name;
    int32_t capability, exact;
    const nacre_images *images;
} nacre_device_level;

/* An entry of the artifact as it is computed on a device. */
typedef struct nacre_device_entry {
    const nacre_kernel *kernels; /* one for each level */
    const char *const *checks;
    nacre_size workspace;
} nacre_device_entry;

typedef struct nacre_device_code {
    const nacre_device_level *levels; /* the most demanding first */
    const nacre_device_entry *entries; /* in the order of the artifact */
    int32_t level_count;
    const char *weights; /* NULL: external, if weight_bytes is not 0 */
    int64_t weight_bytes;
    int64_t weight_offset; /* of external ones, behind the header of the file */
} nacre_device_code;

extern const nacre_device_code nacre_this_device_code;

#endif
