/* Races within a block, as the machine of `machine.h` sees them: two threads access a byte, one of them writes it, and no
 * barrier is between. They are found in whichever order the threads run here.
 *
 * Each byte has its last writer and its reader since a barrier. The lanes of a warp have no order either: neither shuffles
 * nor products order memory. But one instruction of a warp may write a byte for several lanes, and may do so again in a
 * later turn of a loop: where the lanes write different values, the result depends on the order in which they run here.
 * An asynchronous copy writes twice: when it begins, and when its thread waits for it. Copies by tensor maps and the
 * operands of products of warpgroups are not recorded, since barriers in shared memory order them.
 */
#include "machine.h"

#include <stdlib.h>

enum { BYTES = 256, FIRST_SIZE = 1 << 10, MOST_PAGES = 1 << 14, NO_THREAD = -1, SEVERAL = -2 };

/* The phases of the last accesses, their threads, and the instruction of the write. */
typedef struct record { const char *text; uint32_t written, read; int16_t writer, reader; } record;
typedef struct page { uint64_t number; record records[BYTES]; } page;
struct races {
    uint32_t phase; /* the number of barriers and beginnings of blocks until now */
    page **pages, *last; /* a hash table */
    uint32_t count, size;
};

races *create_races(void) {
    races *made = calloc(1, sizeof *made);
    made->size = FIRST_SIZE;
    made->pages = calloc(made->size, sizeof *made->pages);
    return made;
}

static void clear(races *of) {
    for (uint32_t i = 0; i < of->size; i++) free(of->pages[i]);
    memset(of->pages, 0, of->size * sizeof *of->pages);
    of->count = 0;
    of->last = NULL;
}

void free_races(races *of) {
    clear(of);
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
static record *record_of(races *of, uint64_t address) {
    const uint64_t number = address / BYTES;
    if (of->last == NULL || of->last->number != number) {
        page **place = place_of(of, number);
        if (*place == NULL) {
            if (2 * ++of->count > of->size) grow(of), place = place_of(of, number);
            *place = calloc(1, sizeof **place);
            (*place)->number = number;
        }
        of->last = *place;
    }
    return &of->last->records[address % BYTES];
}

void pass_barrier(races *of) { of->phase++; }

void begin_block(races *of) {
    if (of->count > MOST_PAGES) clear(of);
    of->phase++;
}

void check_race(block *b, uint32_t thread, uint64_t address, unsigned bytes, int is_write, const char *text) {
    races *of = b->machine->races;
    for (uint64_t at = address; at < address + bytes; at++) {
        record *each = record_of(of, at);
        const int writer = each->written == of->phase ? each->writer : NO_THREAD;
        const int reader = each->read == of->phase ? each->reader : NO_THREAD, own = (int)thread;
        const int is_one_instruction = is_write && each->text == text && writer / WARP == own / WARP;
        if (writer != NO_THREAD && writer != own && !is_one_instruction)
            fail(b, "a race: no barrier is between thread %d, which writes address %#llx by `%s`, and thread %d: %s", writer,
                 (unsigned long long)at, each->text, own, text);
        if (is_write && reader != NO_THREAD && reader != own)
            fail(b, "a race: no barrier is between another thread, which reads address %#llx, and thread %d: %s",
                 (unsigned long long)at, own, text);
        if (is_write) each->written = of->phase, each->writer = (int16_t)own, each->text = text;
        else each->reader = (int16_t)(reader == NO_THREAD || reader == own ? own : SEVERAL), each->read = of->phase;
    }
}
