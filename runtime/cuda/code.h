/* Descriptions of GPU kernels, which generated code and tables contain. Not part of the ABI. */
#ifndef NACRE_CUDA_CODE_H
#define NACRE_CUDA_CODE_H

#include "../internal.h"

/* A kernel: its PTX, its machine code (NULL if there is none), its name in both, the threads of each block, the bytes of
 * dynamic shared memory, and the number of its arguments. `read` computes the words of its tensor maps, which follow the
 * arguments; NULL if it has none. If `persistent` is not 0, blocks loop over tiles: at most that many of them are
 * launched for each multiprocessor. */
typedef struct nacre_kernel_image {
    const char *ptx, *cubin, *name;
    int64_t threads, shared;
    void (*read)(void **arguments, int64_t *words);
    int64_t arguments, persistent;
} nacre_kernel_image;

/* All kernels of a level, in the order of their numbers. */
typedef struct nacre_images {
    int64_t count;
    const nacre_kernel_image *kernels[];
} nacre_images;

/* Code for one architecture: its compute capability times ten, and whether later architectures cannot run it. `release`
 * is the major version of CUDA that made the machine code; 0 if there is none. */
typedef struct nacre_device_level {
    const char *name;
    int32_t capability, exact;
    const nacre_images *images;
    int32_t release;
} nacre_device_level;

/* The device code of an entry. */
typedef struct nacre_device_entry {
    const nacre_kernel *kernels; /* one for each level */
    const nacre_observed_kernel *observed_kernels; /* one for each level */
    const char *const *checks;
    nacre_size workspace;
} nacre_device_entry;

typedef struct nacre_device_code {
    const nacre_device_level *levels; /* the most demanding one first */
    const nacre_device_entry *entries; /* in the order of the artifact */
    int32_t level_count;
    const char *weights; /* NULL: in an external file, or weight_bytes is 0 */
    int64_t weight_bytes;
    int64_t weight_offset; /* offset of external weights in the file, after its header */
} nacre_device_code;

extern const nacre_device_code nacre_this_device_code;

#endif
