/* Conflicts of accesses to shared memory, as the machine of `machine.h` sees them.
 *
 * Shared memory has 32 banks with words of 4 bytes. One access of a warp is processed in phases: for all lanes at once
 * if each accesses up to 4 bytes, for half of the lanes with 8 bytes, and for a quarter of them with 16 bytes. A phase
 * takes one step, and one more for each further word that it accesses in the same bank. Lanes that access the same
 * word share a step. `ldmatrix` has a phase for the 8 rows of each matrix. Copies by tensor maps and the operands of
 * products of warpgroups are not counted, since the threads do not address them.
 *
 * The threads of a warp run one after another. Their nth executions of an instruction since the last barrier are one
 * access.
 */
#include "machine.h"

#include <stdlib.h>

enum { BANKS = 32, WORD = 4, SIZE = 1 << 16 };

typedef struct access {
    const char *text;
    uint32_t warp, nth, lanes;
    unsigned bytes;
    uint64_t addresses[WARP];
} access;
typedef struct execution { const char *text; uint32_t thread, count; } execution;
struct banks {
    bank_counts counts;
    access *accesses;
    execution *executions;
    uint32_t *places, *slots; /* hash tables of the positions, plus 1, of accesses and executions */
    uint32_t access_count, access_capacity, execution_count, execution_capacity, size;
};

banks *create_banks(void) {
    banks *made = calloc(1, sizeof *made);
    made->size = SIZE;
    made->places = calloc(SIZE, sizeof *made->places);
    made->slots = calloc(SIZE, sizeof *made->slots);
    return made;
}

void free_banks(banks *of) {
    free(of->accesses), free(of->executions), free(of->places), free(of->slots), free(of);
}

static uint32_t hash(const banks *of, const char *text, uint32_t a, uint32_t b) {
    uint64_t made = (uint64_t)(uintptr_t)text * 0x9e3779b97f4a7c15u ^ ((uint64_t)a << 32 | b) * 0xff51afd7ed558ccdu;
    made ^= made >> 29;
    return (uint32_t)(made * 0xbf58476d1ce4e5b9u >> 32) & (of->size - 1);
}

/* Counts the steps of a phase. */
static uint64_t count_phase(banks *of, const uint64_t *addresses, uint32_t lanes, int first, int count, unsigned bytes) {
    uint64_t words[BANKS][WARP];
    uint32_t used[BANKS] = {0}, most = 0;
    for (int lane = first; lane < first + count; lane++) {
        if (!(lanes >> lane & 1)) continue;
        for (uint64_t word = addresses[lane] / WORD; word <= (addresses[lane] + bytes - 1) / WORD; word++) {
            const uint32_t bank = (uint32_t)(word % BANKS);
            uint32_t i = 0;
            while (i < used[bank] && words[bank][i] != word) i++;
            if (i < used[bank]) continue;
            words[bank][used[bank]++] = word;
            if (used[bank] > most) most = used[bank];
        }
    }
    if (most == 0) return 0;
    of->counts.phases++;
    of->counts.conflicts += most - 1;
    return most - 1;
}

static void note_worst(banks *of, const char *text, uint64_t conflicts) {
    if (conflicts <= of->counts.most) return;
    of->counts.most = conflicts;
    of->counts.worst = text;
}

static uint32_t count_execution(banks *of, const char *text, uint32_t thread) {
    uint32_t at = hash(of, text, thread, 0);
    for (; of->slots[at]; at = (at + 1) & (of->size - 1)) {
        execution *each = &of->executions[of->slots[at] - 1];
        if (each->text == text && each->thread == thread) return ++each->count;
    }
    if (of->execution_count == of->execution_capacity) {
        of->execution_capacity = 2 * of->execution_capacity + 1024;
        of->executions = realloc(of->executions, of->execution_capacity * sizeof *of->executions);
    }
    of->executions[of->execution_count++] = (execution){text, thread, 0};
    of->slots[at] = of->execution_count;
    return 0;
}

void note_access(banks *of, uint32_t thread, uint64_t address, unsigned bytes, const char *text) {
    /* A table that is half full is emptied: what the other lanes of its accesses do is then lost. */
    if (2 * of->access_count >= of->size || 2 * of->execution_count >= of->size) settle_banks(of);
    const uint32_t nth = count_execution(of, text, thread), warp = thread / WARP, lane = thread % WARP;
    uint32_t at = hash(of, text, warp, nth + 1);
    for (; of->places[at]; at = (at + 1) & (of->size - 1)) {
        access *each = &of->accesses[of->places[at] - 1];
        if (each->text != text || each->warp != warp || each->nth != nth) continue;
        each->lanes |= 1u << lane;
        each->addresses[lane] = address;
        return;
    }
    if (of->access_count == of->access_capacity) {
        of->access_capacity = 2 * of->access_capacity + 1024;
        of->accesses = realloc(of->accesses, of->access_capacity * sizeof *of->accesses);
    }
    access *made = &of->accesses[of->access_count++];
    *made = (access){.text = text, .warp = warp, .nth = nth, .lanes = 1u << lane, .bytes = bytes};
    made->addresses[lane] = address;
    of->places[at] = of->access_count;
}

void count_rows(banks *of, const uint64_t *addresses, int matrices) {
    uint64_t conflicts = 0;
    for (int i = 0; i < matrices; i++) conflicts += count_phase(of, addresses, ~0u, 8 * i, 8, 16);
    note_worst(of, "ldmatrix", conflicts);
}

void settle_banks(banks *of) {
    for (uint32_t i = 0; i < of->access_count; i++) {
        const access *each = &of->accesses[i];
        const int lanes = each->bytes <= WORD ? WARP : (int)(128 / each->bytes);
        uint64_t conflicts = 0;
        for (int first = 0; first < WARP; first += lanes)
            conflicts += count_phase(of, each->addresses, each->lanes, first, lanes, each->bytes);
        note_worst(of, each->text, conflicts);
    }
    if (of->access_count) memset(of->places, 0, of->size * sizeof *of->places);
    if (of->execution_count) memset(of->slots, 0, of->size * sizeof *of->slots);
    of->access_count = of->execution_count = 0;
}

bank_counts read_banks(const banks *of) { return of->counts; }
