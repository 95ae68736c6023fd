/* Races within a block, as the machine of `machine.h` sees them: two threads access a byte, one of them writes it, and no
 * barrier is between. They are found in whichever order the threads run here.
 *
 * Each byte has its last writer and its readers since then. An access comes before another one if a barrier is between:
 * the epochs of accesses are the number of the last barrier. A block that has asynchronous operations orders its threads
 * by `clocks.c` instead, from the first of these operations on, and `async_races.c` has its other records.
 *
 * The lanes of a warp have no order: neither shuffles nor products order memory. But one instruction of a warp may write
 * a byte for several lanes, and may do so again in a later turn of a loop: where the lanes write different values, the
 * result depends on the order in which they run here. A copy by `cp.async` writes twice: when it begins, and when its
 * thread waits for it.
 */
#include "races.h"

#include <stdlib.h>

enum { FIRST_SIZE = 1 << 10, MOST_PAGES = 1 << 14 };

races *create_races(void) {
    races *made = calloc(1, sizeof *made);
    made->size = FIRST_SIZE;
    made->pages = calloc(made->size, sizeof *made->pages);
    return made;
}

static void clear(races *of) {
    for (uint32_t i = 0; i < of->size; i++) {
        page *each = of->pages[i];
        if (each == NULL) continue;
        for (int byte = 0; each->readers && byte < BYTES; byte++) free(each->readers[byte]);
        free_granules(each);
        free(each->readers), free(each->records), free(each);
    }
    memset(of->pages, 0, of->size * sizeof *of->pages);
    of->count = 0;
    of->last = NULL;
}

void free_races(races *of) {
    clear(of);
    free_clocks(of->clocks);
    free(of->pages), free(of);
}

static page **place_of(const races *of, uint64_t number) {
    uint32_t at = (uint32_t)(number * 0x9e3779b97f4a7c15u >> 32) & (of->size - 1);
    while (of->pages[at] && of->pages[at]->number != number) at = (at + 1) & (of->size - 1);
    return &of->pages[at];
}

static void grow(races *of) {
    page **old = of->pages;
    const uint32_t size = of->size;
    of->size *= 2;
    of->pages = calloc(of->size, sizeof *of->pages);
    for (uint32_t i = 0; i < size; i++)
        if (old[i]) *place_of(of, old[i]->number) = old[i];
    free(old);
}

/* Addresses in shared memory are lower than all others. */
page *find_page(races *of, uint64_t number) {
    page **place = place_of(of, number);
    if (*place == NULL) {
        if (2 * ++of->count > of->size) grow(of), place = place_of(of, number);
        *place = calloc(1, sizeof **place);
        (*place)->number = number;
    }
    return of->last = *place;
}

/* Prepares the first access of a thread to a page in this block. */
static void begin_page(const races *of, page *at) {
    if (at->records == NULL) at->records = calloc(BYTES, sizeof *at->records);
    for (int byte = 0; at->readers && byte < BYTES; byte++) free(at->readers[byte]), at->readers[byte] = NULL;
    at->accessed = of->begun;
}

void pass_barrier(races *of) {
    of->phase++;
    if (of->is_clocked) pass_barrier_with_clocks(of->clocks);
}

void begin_block(races *of) {
    if (of->count > MOST_PAGES) clear(of);
    if (of->is_clocked && of->phase < latest_epoch(of->clocks)) of->phase = latest_epoch(of->clocks);
    of->is_clocked = 0;
    of->begun = ++of->phase;
}

/* Returns whether an access of another thread in this block does not come before what a thread does, by clocks. */
static int is_open(const races *of, int thread, int other, uint32_t epoch) {
    return epoch >= of->begun && other != thread && threads_in(of->clocks, clock_of(of->clocks, (uint32_t)thread))[other] < epoch;
}

/* Returns whether one of several reads is open. Those that came before the clocks of the block have the same epoch. */
static int are_open(const block *b, const page *at, unsigned byte, int thread) {
    const races *of = b->machine->races;
    const uint32_t epoch = at->records[byte].read, *epochs = at->readers ? at->readers[byte] : NULL;
    for (int other = 0; epoch >= of->begun && other < (int)b->threads; other++)
        if (is_open(of, thread, other, epochs ? epochs[other] : epoch)) return 1;
    return 0;
}

/* Notes that a second thread has read a byte since the last write, at an epoch of its clock. */
static void note_reader(const block *b, page *at, unsigned byte, int thread, uint32_t epoch) {
    record *each = &at->records[byte];
    if (at->readers == NULL) at->readers = calloc(BYTES, sizeof *at->readers);
    const int is_known = at->readers[byte] && each->reader == SEVERAL;
    if (at->readers[byte] == NULL) at->readers[byte] = malloc(b->threads * sizeof **at->readers);
    for (int other = 0; !is_known && other < (int)b->threads; other++)
        at->readers[byte][other] = each->reader == SEVERAL || each->reader == other ? each->read : 0;
    at->readers[byte][thread] = epoch;
    if (each->read < epoch) each->read = epoch;
    each->reader = SEVERAL;
}

/* Checks an access and notes it; compiled once for blocks with clocks, and once for those without. */
static inline __attribute__((always_inline)) void check_bytes(block *b, uint32_t thread, uint64_t address, unsigned bytes,
                                                              int is_write, const char *text, const int is_clocked) {
    races *of = b->machine->races;
    const int own = (int)thread;
    const uint32_t epoch = is_clocked ? threads_in(of->clocks, clock_of(of->clocks, thread))[thread] : of->phase;
    page *page = page_of(of, address);
    if (page->accessed != of->begun) begin_page(of, page);
    for (unsigned byte = address % BYTES; byte < address % BYTES + bytes; byte++) {
        record *each = &page->records[byte];
        int writer = each->writer, reader = each->reader;
        if (is_clocked ? !is_open(of, own, writer, each->written) : each->written != epoch) writer = NO_THREAD;
        if (!is_clocked ? each->read != epoch
            : reader == SEVERAL ? !are_open(b, page, byte, own)
            : !is_open(of, own, reader, each->read)) reader = NO_THREAD;
        const int is_one_instruction = is_write && each->text == text && writer / WARP == own / WARP;
        const unsigned long long at = page->number * BYTES + byte;
        if (writer != NO_THREAD && writer != own && !is_one_instruction)
            fail(b, "a race: no barrier is between thread %d, which writes address %#llx by `%s`, and thread %d: %s", writer,
                 at, each->text, own, text);
        if (is_write && reader != NO_THREAD && reader != own)
            fail(b, "a race: no barrier is between another thread, which reads address %#llx, and thread %d: %s", at, own,
                 text);
        if (is_write) each->written = epoch, each->writer = (int16_t)own, each->text = text;
        else if (reader == NO_THREAD || reader == own) each->reader = (int16_t)own, each->read = epoch;
        else if (is_clocked) note_reader(b, page, byte, own, epoch);
        else each->reader = SEVERAL;
    }
    if (is_clocked) check_against_async(b, page, thread, address, bytes, is_write, text);
}

void check_race(block *b, uint32_t thread, uint64_t address, unsigned bytes, int is_write, const char *text) {
    if (b->machine->races->is_clocked) check_bytes(b, thread, address, bytes, is_write, text, 1);
    else check_bytes(b, thread, address, bytes, is_write, text, 0);
}
