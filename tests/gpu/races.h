/* The records of races within a block, which `races.c`, `clocks.c` and `async_races.c` share; none of them is seen by the
 * other parts of the machine. */
#ifndef RACES_H
#define RACES_H

#include "machine.h"

enum { BYTES = 256, GRANULE = 16, NO_THREAD = -1, SEVERAL = -2, NO_WARP = MOST_THREADS };

/* The epochs of the last accesses of a byte by threads, these threads, and the instruction of the write. */
typedef struct record { const char *text; uint32_t written, read; int16_t writer, reader; } record;

/* The asynchronous accesses of a granule: the last write and its instruction, and the last read of each agent since then.
 * `bytes` has a bit for each byte. */
typedef struct async_access { uint32_t epoch; uint16_t agent, bytes; } async_access;
typedef struct granule { const char *text; async_access write, *reads; uint32_t count, capacity; } granule;

/* The records of BYTES addresses, with memory for those kinds of accesses that there are. `accessed` and `copied` are the
 * first epochs of the last blocks whose threads, or whose asynchronous operations, have accessed one of them. */
typedef struct page {
    uint64_t number;
    uint32_t accessed, copied;
    record *records;
    uint32_t **readers; /* by byte and thread, the epochs of reads, where several threads have read */
    granule *granules;
} page;

/* The clocks of a block. Each thread has a clock, a vector of numbers with three parts:
 *
 *     agents     the epoch up to which operations of each asynchronous agent are complete before what the thread does next
 *     threads    the epoch up to which accesses of each thread come before it
 *     fenced     the same with a `fence.proxy.async` on the way: only these come before its asynchronous operations
 */
enum { BARRIER_AGENT = 0, PRODUCT_AGENT = MOST_BARRIERS, MOST_STORING = 32 };
enum { READ_AGENT = PRODUCT_AGENT + MOST_THREADS / WARP, WRITE_AGENT = READ_AGENT + MOST_STORING };
enum { AGENTS = WRITE_AGENT + MOST_STORING };
typedef struct barrier_clock {
    uint32_t thread, epoch; /* of its creation */
    uint32_t ended, capacity; /* the phases that have ended, and those that `phases` has memory for */
    uint32_t *arrived, *phases; /* the clock of all arrivals until now, and of those until the end of each phase */
} barrier_clock;
typedef struct clocks {
    uint32_t threads, width, storing[MOST_STORING], storing_count;
    uint32_t *all, *warp; /* the clocks of threads; the clock of a product: what all lanes of its warp have seen */
    uint32_t warp_thread; /* the first thread of that warp, until a clock changes: then NO_WARP */
    barrier_clock barriers[MOST_BARRIERS];
} clocks;

struct races {
    uint32_t phase, begun; /* the number of barriers and beginnings of blocks until now, and until this block */
    page **pages, *last; /* a hash table */
    uint32_t count, size;
    int is_clocked; /* whether the block has clocks; if not, the epochs of all threads are the phase */
    clocks *clocks;
};

page *find_page(races *of, uint64_t number);
static inline page *page_of(races *of, uint64_t address) {
    return of->last && of->last->number == address / BYTES ? of->last : find_page(of, address / BYTES);
}
void free_granules(page *of);

static inline uint32_t *clock_of(const clocks *of, uint32_t thread) { return of->all + (size_t)thread * of->width; }
static inline uint32_t *threads_in(const clocks *of, uint32_t *clock) { return clock + AGENTS; }
static inline uint32_t *fenced_in(const clocks *of, uint32_t *clock) { return clock + AGENTS + of->threads; }

/* Returns the clocks of a block, which begin with its first asynchronous operation. */
clocks *clocks_of(block *b);
void pass_barrier_with_clocks(clocks *of);
uint32_t latest_epoch(const clocks *of);
void free_clocks(clocks *of);

/* Check an access of a thread against asynchronous ones. */
void check_against_async(block *b, page *at, uint32_t thread, uint64_t address, unsigned bytes, int is_write, const char *text);

#endif
