/* Memory of a session. */
#ifndef NACRE_MEMORY_H
#define NACRE_MEMORY_H

#include <stdint.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include "abi.h"

#define NACRE_HUGE_PAGE ((size_t)2 << 20)
#define NACRE_MANY_PAGES ((size_t)16 << 20) /* the padding to whole huge pages is then at most an eighth */

/* Memory for `free`, at least as aligned as a workspace; NULL if there is none. Kernels that read a matrix down its
   columns visit a page for each element, so the system is asked for huge pages where the memory has many. */
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
