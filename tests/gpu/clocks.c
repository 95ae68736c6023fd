/* The order of the threads and the asynchronous operations of a block: vector clocks.
 *
 * An epoch is a number of a thread that grows with each of its events that others may see. One access comes before
 * another one if the second one's thread has seen the epoch of the first. Threads see each other's epochs at barriers:
 * at those of a block, which all threads pass, and at those in shared memory.
 *
 *     thread 0     write x (epoch 5)    fence    arrive (6)
 *                                                  \
 *     thread 32                                     wait    [thread 0: 6, fenced: 5]    begin a copy from x
 *
 * Asynchronous operations have epochs too. Their agents are
 *
 *     a barrier in shared memory     the copies that complete on it; the epoch is the number of the phase, from 1
 *     a warp                         its products; the epoch is the number of the group, from 1
 *     a thread that stores           the copies from shared memory that it begins, once for reads and once for writes;
 *                                    the epoch is the number of the group, from 1
 *
 * Thus a wait for a phase or for groups sees one more epoch, whichever operation of it is complete first. Completed
 * operations need no proxy fence before ordinary accesses. Accesses of threads need one before asynchronous operations,
 * anywhere on the way between them; fences order shared memory only, so none is searched for in global memory. The end of
 * a copy tells nothing of what its thread did before it began.
 *
 * A wait for a parity may end at once where the phase before has that parity. So it sees no more than the least number of
 * phases that have the parity and are not fewer than the thread has seen: a wait for the wrong parity orders nothing,
 * also if it happens to last.
 *
 * https://docs.nvidia.com/cuda/parallel-thread-execution/#memory-consistency-model
 */
#include "races.h"

#include <stdlib.h>

static void join(const clocks *of, uint32_t *restrict to, const uint32_t *restrict from) {
    for (uint32_t i = 0; i < of->width; i++) to[i] = to[i] < from[i] ? from[i] : to[i];
}

/* Returns the clock of the running thread, to change it. */
static uint32_t *own_clock(const block *b, clocks *of) {
    of->warp_thread = NO_WARP;
    return clock_of(of, b->thread);
}

static clocks *create_clocks(uint32_t threads) {
    clocks *made = calloc(1, sizeof *made);
    made->threads = threads;
    made->width = AGENTS + 2 * threads;
    made->all = malloc((size_t)threads * made->width * sizeof *made->all);
    made->warp = malloc(made->width * sizeof *made->warp);
    for (int i = 0; i < MOST_BARRIERS; i++) made->barriers[i].arrived = malloc(made->width * sizeof *made->all);
    return made;
}

void free_clocks(clocks *of) {
    if (of == NULL) return;
    for (int i = 0; i < MOST_BARRIERS; i++) free(of->barriers[i].arrived), free(of->barriers[i].phases);
    free(of->all), free(of->warp), free(of);
}

clocks *clocks_of(block *b) {
    races *of = b->machine->races;
    if (of == NULL || of->is_clocked) return of ? of->clocks : NULL;
    if (of->clocks == NULL || of->clocks->threads != b->threads) {
        free_clocks(of->clocks);
        of->clocks = create_clocks(b->threads);
    }
    clocks *begun = of->clocks;
    begun->storing_count = 0;
    begun->warp_thread = NO_WARP;
    for (uint32_t thread = 0; thread < b->threads; thread++) {
        uint32_t *clock = clock_of(begun, thread), *threads = threads_in(begun, clock), *fenced = fenced_in(begun, clock);
        memset(clock, 0, AGENTS * sizeof *clock);
        for (uint32_t other = 0; other < b->threads; other++) {
            threads[other] = of->phase - (other != thread);
            fenced[other] = of->begun - 1;
        }
    }
    of->is_clocked = 1;
    return begun;
}

uint32_t latest_epoch(const clocks *of) {
    uint32_t latest = 0;
    for (uint32_t thread = 0; thread < of->threads; thread++) {
        const uint32_t own = threads_in(of, clock_of(of, thread))[thread];
        if (latest < own) latest = own;
    }
    return latest;
}

void pass_barrier_with_clocks(clocks *of) {
    of->warp_thread = NO_WARP;
    uint32_t *all = clock_of(of, 0);
    for (uint32_t thread = 1; thread < of->threads; thread++) join(of, all, clock_of(of, thread));
    for (uint32_t thread = 1; thread < of->threads; thread++) {
        uint32_t *clock = clock_of(of, thread);
        memcpy(clock, all, of->width * sizeof *clock);
        threads_in(of, clock)[thread]++;
    }
    threads_in(of, all)[0]++;
}

/* Fences */

void fence_proxies(block *b) {
    clocks *of = clocks_of(b);
    if (of == NULL) return;
    uint32_t *clock = own_clock(b, of), *threads = threads_in(of, clock);
    memcpy(fenced_in(of, clock), threads, of->threads * sizeof *clock);
    threads[b->thread]++;
}

/* Barriers in shared memory */

void begin_phases(block *b, int number) {
    clocks *of = clocks_of(b);
    if (of == NULL) return;
    barrier_clock *begun = &of->barriers[number];
    begun->thread = b->thread;
    begun->epoch = threads_in(of, clock_of(of, b->thread))[b->thread];
    begun->ended = 0;
    memset(begun->arrived, 0, of->width * sizeof *begun->arrived);
}

static void check_creation(block *b, const clocks *of, const barrier_clock *barrier, int number) {
    if (barrier->thread != b->thread && threads_in(of, clock_of(of, b->thread))[barrier->thread] < barrier->epoch)
        fail(b, "a race: no barrier is between thread %u, which creates the barrier at shared address %llu, and thread %u",
             barrier->thread, (unsigned long long)b->barriers[number].address, b->thread);
}

void arrive_at_phase(block *b, int number) {
    clocks *of = clocks_of(b);
    if (of == NULL) return;
    check_creation(b, of, &of->barriers[number], number);
    uint32_t *clock = own_clock(b, of);
    join(of, of->barriers[number].arrived, clock);
    threads_in(of, clock)[b->thread]++;
}

void check_barrier_of_copy(block *b, int number, const char *text) {
    clocks *of = clocks_of(b);
    if (of == NULL) return;
    const barrier_clock *barrier = &of->barriers[number];
    check_creation(b, of, barrier, number);
    if (fenced_in(of, clock_of(of, b->thread))[barrier->thread] < barrier->epoch)
        fail(b, "a race: no fence.proxy.async is between thread %u, which creates the barrier at shared address %llu, and "
             "a copy: %s", barrier->thread, (unsigned long long)b->barriers[number].address, text);
}

void end_phase_of_clock(block *b, int number) {
    clocks *of = clocks_of(b);
    if (of == NULL) return;
    barrier_clock *barrier = &of->barriers[number];
    if (barrier->ended == barrier->capacity) {
        barrier->capacity = 2 * barrier->capacity + 4;
        barrier->phases = realloc(barrier->phases, (size_t)barrier->capacity * of->width * sizeof *barrier->phases);
    }
    barrier->arrived[BARRIER_AGENT + number] = barrier->ended + 1;
    memcpy(barrier->phases + (size_t)barrier->ended++ * of->width, barrier->arrived, of->width * sizeof *barrier->phases);
}

void see_phase(block *b, int number, uint32_t parity) {
    clocks *of = clocks_of(b);
    if (of == NULL) return;
    const barrier_clock *barrier = &of->barriers[number];
    check_creation(b, of, barrier, number);
    uint32_t *clock = own_clock(b, of);
    const uint32_t seen = clock[BARRIER_AGENT + number];
    if (seen % 2 == parity) join(of, clock, barrier->phases + (size_t)seen * of->width);
}

/* Groups of products and of copies */

void see_products(block *b, int groups) {
    clocks *of = clocks_of(b);
    if (of == NULL || groups <= 0) return;
    uint32_t *seen = own_clock(b, of) + PRODUCT_AGENT + b->thread / WARP;
    if (*seen < (uint32_t)groups) *seen = (uint32_t)groups;
}

void see_stores(block *b, int groups, int is_written) {
    clocks *of = clocks_of(b);
    if (of == NULL || groups <= 0) return;
    uint32_t *clock = own_clock(b, of);
    for (uint32_t i = 0; i < of->storing_count; i++) {
        if (of->storing[i] != b->thread) continue;
        if (clock[READ_AGENT + i] < (uint32_t)groups) clock[READ_AGENT + i] = (uint32_t)groups;
        if (is_written && clock[WRITE_AGENT + i] < (uint32_t)groups) clock[WRITE_AGENT + i] = (uint32_t)groups;
    }
}
