/* Allocates memory of sessions. */
#ifndef NACRE_MEMORY_H
#define NACRE_MEMORY_H

#include <stdint.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include "abi.h"

#define NACRE_HUGE_PAGE ((size_t)2 << 20)
#define NACRE_MANY_PAGES ((size_t)16 << 20) /* from this size on, padding to whole huge pages is at most an eighth */

/* Returns memory aligned to NACRE_ALIGNMENT or more, to be released by `free`; NULL if there is none. Large memory is
   advised to use huge pages: a kernel that reads a matrix along columns visits another small page for each element. */
static inline void *nacre_allocate(size_t bytes) {
#ifdef MADV_HUGEPAGE
    if (bytes >= NACRE_MANY_PAGES && bytes <= SIZE_MAX - NACRE_HUGE_PAGE) {
        const size_t whole = (bytes + NACRE_HUGE_PAGE - 1) / NACRE_HUGE_PAGE * NACRE_HUGE_PAGE;
        void *memory = aligned_alloc(NACRE_HUGE_PAGE, whole);
        if (memory) (void)madvise(memory, whole, MADV_HUGEPAGE);
        return memory;
    }
#endif
    return aligned_alloc(NACRE_ALIGNMENT, (bytes + NACRE_ALIGNMENT - 1) / NACRE_ALIGNMENT * NACRE_ALIGNMENT);
}

#endif
