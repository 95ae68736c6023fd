/* Memory on huge pages, from a system that has them and from one that refuses: every page that is not returned is given
 * back, and no other. */

#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static int is_refused;
static size_t mapped, most;
static char *first;

#define HUGE ((size_t)2 << 20)

#define PAGE 4096

static size_t before_first;

/* Memory that begins so many pages after a huge page. */
static void *counting_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    char *whole = mmap(at, bytes + 2 * HUGE, protection, flags, file, offset);
    first = whole + (HUGE - (uintptr_t)whole % HUGE) % HUGE + before_first;
    mapped = most = bytes;
    return first;
}

static int counting_munmap(void *at, size_t bytes) {
    const char *begin = at;
    if (begin < first || begin + bytes > first + most) fprintf(stderr, "memory of somebody else is given back\n"), exit(1);
    mapped -= bytes;
    return munmap(at, bytes);
}

static int refusing_madvise(void *at, size_t bytes, int advice) {
    return is_refused ? -1 : (madvise(at, bytes, advice), 0);
}

#define mmap counting_mmap
#define munmap counting_munmap
#define madvise refusing_madvise
#include "weights.c"

const nacre_artifact nacre_this_artifact = {0};

int main(void) {
    const size_t bytes = 3 * NACRE_HUGE_PAGE;
    if (NACRE_HUGE_PAGE != HUGE) return puts("huge pages have another size"), 1;
    for (int turn = 0; turn < 20; turn++) {
        is_refused = turn % 2;
        before_first = (size_t)(turn / 2 % 3 * 211) * PAGE;
        char *made = allocate_huge(bytes);
        if ((made == NULL) != is_refused) return puts("the wrong answer"), 1;
        if (mapped != (is_refused ? 0 : bytes)) return printf("%zu bytes are kept\n", mapped), 1;
        if (made == NULL) continue;
        if ((uintptr_t)made % NACRE_HUGE_PAGE) return puts("not at a huge page"), 1;
        for (size_t i = 0; i < bytes; i += PAGE) made[i] = 1; /* fails where the memory was given back */
    }
    puts("ok");
    return 0;
}
