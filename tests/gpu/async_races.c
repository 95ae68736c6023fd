/* Races of asynchronous operations: copies of boxes, copies of bytes, and the operands of products of warpgroups.
 *
 * They access whole granules of 16 bytes, except at the ends of tensors in global memory. Each granule has the last write
 * and the reads since then, with the agents and the epochs of `clocks.c`. An operation is checked when it begins: what it
 * overwrites must have been read, and what it reads must have been written, before. Accesses after it must have seen
 * its completion.
 */
#include "races.h"

#include <stdlib.h>

static granule *granule_at(const races *of, page *at, uint64_t address) {
    if (at->granules == NULL) at->granules = calloc(BYTES / GRANULE, sizeof *at->granules);
    if (at->copied != of->begun) {
        for (int i = 0; i < BYTES / GRANULE; i++) at->granules[i].count = at->granules[i].write.bytes = 0;
        at->copied = of->begun;
    }
    return &at->granules[address % BYTES / GRANULE];
}

void free_granules(page *of) {
    for (int i = 0; of->granules && i < BYTES / GRANULE; i++) free(of->granules[i].reads);
    free(of->granules);
}

static uint16_t bits_of(uint64_t address, uint64_t bytes) { return (uint16_t)(((1u << bytes) - 1) << address % GRANULE); }

/* Returns the end of the granule of an address, or that of an access. */
static uint64_t end_of_granule(uint64_t address, uint64_t end) {
    const uint64_t next = address - address % GRANULE + GRANULE;
    return next < end ? next : end;
}

static const char *name_of(uint16_t agent) {
    return agent < PRODUCT_AGENT ? "a copy to shared memory" : agent < READ_AGENT ? "a product" : "a copy from shared memory";
}

static int is_open(const uint32_t *clock, const async_access *access, uint16_t bytes) {
    return access->bytes & bytes && clock[access->agent] < access->epoch;
}

/* Checks that asynchronous accesses of a granule come before an access to some of its bytes. */
static void check_granule(block *b, const granule *at, const uint32_t *clock, uint64_t address, uint16_t bytes, int is_write,
                          const char *text) {
    const unsigned long long shown = address;
    if (is_open(clock, &at->write, bytes))
        fail(b, "a race: no wait is between %s, which writes address %#llx by `%s`, and %s", name_of(at->write.agent), shown,
             at->text, text);
    for (uint32_t i = 0; is_write && i < at->count; i++)
        if (is_open(clock, &at->reads[i], bytes))
            fail(b, "a race: no wait is between %s, which reads address %#llx, and %s", name_of(at->reads[i].agent), shown,
                 text);
}

void check_against_async(block *b, page *at, uint32_t thread, uint64_t address, unsigned bytes, int is_write, const char *text) {
    const races *of = b->machine->races;
    if (at->copied != of->begun) return;
    const uint32_t *clock = clock_of(of->clocks, thread);
    for (uint64_t begin = address, end = address + bytes; begin < end; begin = end_of_granule(begin, end)) {
        const uint16_t bits = bits_of(begin, end_of_granule(begin, end) - begin);
        check_granule(b, granule_at(of, at, begin), clock, begin, bits, is_write, text);
    }
}

/* An operation that begins: the clock of the thread that begins it, and the epoch of its completion. */
typedef struct operation {
    uint32_t *clock;
    async_access access;
    int is_shared, is_write;
    const char *text;
} operation;

/* Checks that accesses of a byte by threads come before an operation, with a fence between. */
static void check_record(block *b, const page *at, unsigned byte, const operation *by) {
    const races *of = b->machine->races;
    const record *each = &at->records[byte];
    const unsigned long long address = at->number * BYTES + byte;
    const uint32_t *threads = threads_in(of->clocks, by->clock);
    const uint32_t *fenced = by->is_shared ? fenced_in(of->clocks, by->clock) : threads;
    if (each->written >= of->begun && fenced[each->writer] < each->written)
        fail(b, "a race: no %s is between thread %d, which writes address %#llx by `%s`, and an asynchronous access: %s",
             threads[each->writer] < each->written ? "barrier" : "fence.proxy.async", each->writer, address, each->text,
             by->text);
    if (!by->is_write || each->reader == NO_THREAD || each->read < of->begun) return;
    const uint32_t *epochs = each->reader == SEVERAL && at->readers ? at->readers[byte] : NULL;
    for (uint32_t thread = 0; thread < b->threads; thread++) {
        if (each->reader != SEVERAL && each->reader != (int)thread) continue;
        const uint32_t epoch = epochs ? epochs[thread] : each->read;
        if (epoch >= of->begun && fenced[thread] < epoch)
            fail(b, "a race: no %s is between thread %u, which reads address %#llx, and an asynchronous access: %s",
                 threads[thread] < epoch ? "barrier" : "fence.proxy.async", thread, address, by->text);
    }
}

/* Notes a read. The epochs of an agent end in their order, so its last one stands for the others. */
static void note_read(granule *at, const async_access *read) {
    uint32_t i = 0;
    while (i < at->count && at->reads[i].agent != read->agent) i++;
    if (i == at->capacity) {
        at->capacity = 2 * at->capacity + 4;
        at->reads = realloc(at->reads, at->capacity * sizeof *at->reads);
    }
    if (i == at->count) at->reads[at->count++] = *read;
    at->reads[i].epoch = read->epoch;
    at->reads[i].bytes |= read->bytes;
}

static void check_operation(block *b, operation by, uint64_t address, uint64_t bytes) {
    races *of = b->machine->races;
    for (uint64_t begin = address, stop, end = address + bytes; begin < end; begin = stop) {
        stop = end_of_granule(begin, end);
        page *at = page_of(of, begin);
        if (at->accessed == of->begun)
            for (uint64_t byte = begin; byte < stop; byte++) check_record(b, at, byte % BYTES, &by);
        granule *each = granule_at(of, at, begin);
        by.access.bytes = bits_of(begin, stop - begin);
        check_granule(b, each, by.clock, begin, by.access.bytes, by.is_write, by.text);
        if (by.is_write) {
            /* Whatever comes after this write comes after all that it has overwritten. */
            if (at->accessed == of->begun) memset(&at->records[begin % BYTES], 0, (stop - begin) * sizeof *at->records);
            each->text = by.text;
            each->write = by.access;
            each->count = 0;
        } else note_read(each, &by.access);
    }
}

void check_copy(block *b, int barrier, uint64_t address, uint64_t bytes, int is_write, const char *text) {
    clocks *of = clocks_of(b);
    if (of == NULL) return;
    const async_access access = {of->barriers[barrier].ended + 1, (uint16_t)(BARRIER_AGENT + barrier), 0};
    check_operation(b, (operation){clock_of(of, b->thread), access, is_write, is_write, text}, address, bytes);
}

static int number_of_storing(block *b, clocks *of) {
    for (uint32_t i = 0; i < of->storing_count; i++)
        if (of->storing[i] == b->thread) return (int)i;
    if (of->storing_count == MOST_STORING) fail(b, "more than %d threads copy from shared memory", MOST_STORING);
    of->storing[of->storing_count] = b->thread;
    return (int)of->storing_count++;
}

void check_store(block *b, int group, uint64_t address, uint64_t bytes, int is_write, const char *text) {
    clocks *of = clocks_of(b);
    if (of == NULL) return;
    const int agent = number_of_storing(b, of) + (is_write ? WRITE_AGENT : READ_AGENT);
    const async_access access = {(uint32_t)group + 1, (uint16_t)agent, 0};
    check_operation(b, (operation){clock_of(of, b->thread), access, !is_write, is_write, text}, address, bytes);
}

void begin_product(block *b) {
    clocks *of = clocks_of(b);
    if (of == NULL || of->warp_thread == b->thread) return;
    of->warp_thread = b->thread;
    memcpy(of->warp, clock_of(of, b->thread), of->width * sizeof *of->warp);
    for (uint32_t lane = 1; lane < WARP; lane++) {
        const uint32_t *clock = clock_of(of, b->thread + lane);
        for (uint32_t i = 0; i < of->width; i++) of->warp[i] = of->warp[i] > clock[i] ? clock[i] : of->warp[i];
    }
}

void check_factor(block *b, int group, uint64_t address, uint64_t bytes) {
    clocks *of = clocks_of(b);
    if (of == NULL) return;
    const async_access access = {(uint32_t)group + 1, (uint16_t)(PRODUCT_AGENT + b->thread / WARP), 0};
    check_operation(b, (operation){of->warp, access, 1, 0, "wgmma.mma_async"}, address, bytes);
}
