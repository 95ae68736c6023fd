/* The threads and the memory of `machine.h`. */
#include "machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

_Noreturn void fail(block *b, const char *format, ...) {
    char text[400];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    snprintf(b->machine->error, sizeof b->machine->error, "block %u, thread %u: %s", b->number, b->thread, text);
    longjmp(*(jmp_buf *)b->failure, 1);
}

allocation *find(machine *m, uint64_t address) {
    static allocation *last;
    if (last >= m->allocations && last < m->allocations + m->count && address >= last->begin && address < last->end)
        return last;
    int low = 0, high = m->count;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (m->allocations[middle].end <= address) low = middle + 1;
        else high = middle;
    }
    return low < m->count && m->allocations[low].begin <= address ? last = &m->allocations[low] : NULL;
}

/* Blocks of a launch run in any order. Two of them must not access a byte that one of them writes, even if it writes what
 * is there already. A byte that several blocks read has the number after the last block as its reader. */
static void check_blocks(block *b, const allocation *a, uint64_t at, unsigned bytes, int is_write, const char *text) {
    const uint32_t first = b->machine->first, own = first + b->number, several = first + b->blocks;
    for (uint64_t i = at; i < at + bytes; i++) {
        const uint32_t writer = a->writers[i], reader = a->readers[i];
        if (writer != own && writer >= first)
            fail(b, "block %u has written address %#llx in the same launch: %s", writer - first,
                 (unsigned long long)(a->begin + i), text);
        if (!is_write) {
            a->readers[i] = reader == own || reader < first ? own : several;
            continue;
        }
        if (reader != own && reader >= first)
            fail(b, "another block has read address %#llx in the same launch: %s", (unsigned long long)(a->begin + i), text);
        a->writers[i] = own;
    }
}

void *global_unordered(block *b, uint64_t address, unsigned bytes, int is_write, const char *text) {
    if (address % bytes) fail(b, "address %#llx is not aligned to %u: %s", (unsigned long long)address, bytes, text);
    allocation *a = find(b->machine, address);
    if (a == NULL || address + bytes > a->end)
        fail(b, "address %#llx is outside of all allocations: %s", (unsigned long long)address, text);
    uint8_t *written = a->written + (address - a->begin);
    for (unsigned i = 0; i < bytes; i++) {
        if (is_write) written[i] = 1;
        else if (!written[i]) fail(b, "address %#llx was never written: %s", (unsigned long long)address, text);
    }
    if (b->blocks > 1) check_blocks(b, a, address - a->begin, bytes, is_write, text);
    return (void *)(uintptr_t)address;
}

void *global(block *b, uint64_t address, unsigned bytes, int is_write, const char *text) {
    void *found = global_unordered(b, address, bytes, is_write, text);
    if (b->machine->races) check_race(b, b->thread, address, bytes, is_write, text);
    return found;
}

void *shared_unordered(block *b, uint64_t address, unsigned bytes, int is_write, const char *text) {
    if (address % bytes) fail(b, "shared address %llu is not aligned to %u: %s", (unsigned long long)address, bytes, text);
    if (address + bytes > b->shared_bytes)
        fail(b, "shared address %llu is beyond %llu: %s", (unsigned long long)address,
             (unsigned long long)b->shared_bytes, text);
    for (unsigned i = 0; i < bytes; i++) {
        if (is_write) b->shared_written[address + i] = 1;
        else if (!b->shared_written[address + i])
            fail(b, "shared address %llu was never written: %s", (unsigned long long)address, text);
    }
    return b->shared + address;
}

void *shared(block *b, uint64_t address, unsigned bytes, int is_write, const char *text) {
    void *found = shared_unordered(b, address, bytes, is_write, text);
    if (b->machine->banks) note_access(b->machine->banks, b->thread, address, bytes, text);
    if (b->machine->races) check_race(b, b->thread, address, bytes, is_write, text);
    return found;
}

void *local(block *b, uint64_t address, unsigned bytes, uint8_t *depot, uint64_t size, const char *text) {
    const uint64_t begin = (uint64_t)(uintptr_t)depot;
    if (address % bytes || address < begin || address + bytes > begin + size) fail(b, "wrong local address: %s", text);
    return (void *)(uintptr_t)address;
}

void copy_async(block *b, mail *m, uint64_t target, uint64_t source, unsigned bytes, unsigned read, const char *text) {
    if (target % bytes || target + bytes > b->shared_bytes) fail(b, "wrong target %llu: %s", (unsigned long long)target, text);
    if (source % bytes) fail(b, "address %#llx is not aligned to %u: %s", (unsigned long long)source, bytes, text);
    if (read > bytes) fail(b, "a copy of %u bytes cannot read %u: %s", bytes, read, text);
    if (m->copy_count == m->copy_capacity) {
        m->copy_capacity = 2 * m->copy_capacity + 8;
        m->copies = realloc(m->copies, (size_t)m->copy_capacity * sizeof *m->copies);
    }
    copy *made = &m->copies[m->copy_count++];
    *made = (copy){.target = target, .bytes = bytes, .group = m->group};
    for (unsigned i = 0; i < read; i++) made->data[i] = *(uint8_t *)global(b, source + i, 1, 0, text);
    memset(b->shared_written + target, 0, bytes);
    if (b->machine->banks) note_access(b->machine->banks, b->thread, target, bytes, text);
    if (b->machine->races) check_race(b, b->thread, target, bytes, 1, text);
}

void wait_for_copies(block *b, mail *m, int left) {
    int kept = 0;
    for (int i = 0; i < m->copy_count; i++) {
        const copy *each = &m->copies[i];
        if (each->group >= m->group - left) {
            m->copies[kept++] = *each;
            continue;
        }
        memcpy(b->shared + each->target, each->data, each->bytes);
        memset(b->shared_written + each->target, 1, each->bytes);
        if (b->machine->races) check_race(b, b->thread, each->target, each->bytes, 1, "cp.async.wait_group");
    }
    m->copy_count = kept;
}

/* Meetings of a warp */

/* Matrices of 8 x 8 elements of 16 bits: lane 8 i + r gives the address of row r of matrix i. */
static void load_fragments(block *b, mail *mails) {
    const int count = (int)mails[0].in[1], is_turned = (int)mails[0].in[2];
    uint16_t rows[32][8];
    uint64_t addresses[32];
    for (int lane = 0; lane < 8 * count; lane++) {
        addresses[lane] = mails[lane].in[0];
        memcpy(rows[lane], shared_unordered(b, addresses[lane], 16, 0, "ldmatrix"), 16);
        if (b->machine->races) check_race(b, b->thread + lane, addresses[lane], 16, 0, "ldmatrix");
    }
    if (b->machine->banks) count_rows(b->machine->banks, addresses, count);
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < count; i++) {
            const int far = lane / 4, near = 2 * (lane % 4);
            const uint16_t low = is_turned ? rows[8 * i + near][far] : rows[8 * i + far][near];
            const uint16_t high = is_turned ? rows[8 * i + near + 1][far] : rows[8 * i + far][near + 1];
            mails[lane].out[i] = (uint32_t)high << 16 | low;
        }
}

static void shuffle(block *b, mail *mails, int mode) {
    for (int lane = 0; lane < WARP; lane++) {
        const int by = (int)mails[lane].in[1];
        int from = mode == 0 ? lane ^ by : mode == 1 ? lane + by : mode == 2 ? lane - by : by;
        const int is_inside = from >= 0 && from < WARP;
        if (!is_inside) from = lane;
        mails[lane].out[0] = mails[from].in[0];
        mails[lane].out[1] = (uint32_t)is_inside;
    }
    (void)b;
}

/* D = A * B + C of m16n8k32, in the layout of PTX. `dtype` is 4, plus 2 if A is signed, plus 1 if B is. */
static void multiply_bytes(mail *mails, int dtype) {
    int32_t a[16][32], b[32][8];
    for (int lane = 0; lane < WARP; lane++) {
        const int group = lane / 4, part = lane % 4;
        const uint32_t *in = mails[lane].in;
        for (int i = 0; i < 16; i++) {
            const uint8_t byte = (uint8_t)(in[i / 4] >> 8 * (i % 4));
            a[group + 8 * (i / 4 & 1)][4 * part + i % 4 + 16 * (i / 8)] = dtype & 2 ? (int8_t)byte : byte;
        }
        for (int i = 0; i < 8; i++) {
            const uint8_t byte = (uint8_t)(in[4 + i / 4] >> 8 * (i % 4));
            b[4 * part + i % 4 + 16 * (i / 4)][group] = dtype & 1 ? (int8_t)byte : byte;
        }
    }
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + (i & 1);
            uint32_t total = mails[lane].in[6 + i];
            for (int k = 0; k < 32; k++) total += (uint32_t)(a[row][k] * b[k][column]);
            mails[lane].out[i] = total;
        }
}

/* D = A * B + C of m16n8k16 (f16 if `dtype` is 0, bf16 if 1) and of m16n8k8 (tf32 if 2), in the layout of PTX. */
static void multiply(mail *mails, int dtype) {
    if (dtype >= 4) {
        multiply_bytes(mails, dtype);
        return;
    }
    float a[16][16] = {{0}}, b[16][8] = {{0}};
    const int depth = dtype == 2 ? 8 : 16;
    for (int lane = 0; lane < WARP; lane++) {
        const int group = lane / 4, part = lane % 4;
        const uint32_t *in = mails[lane].in;
        if (dtype == 2) {
            for (int i = 0; i < 4; i++) a[group + 8 * (i & 1)][part + 4 * (i >> 1)] = f32(in[i] & 0xffffe000u);
            for (int i = 0; i < 2; i++) b[part + 4 * i][group] = f32(in[4 + i] & 0xffffe000u);
            continue;
        }
        for (int i = 0; i < 8; i++) {
            const uint16_t bits = (uint16_t)(in[i / 2] >> 16 * (i & 1));
            a[group + 8 * (i / 2 & 1)][2 * part + (i & 1) + 8 * (i / 4)] = dtype ? bf16(bits) : f16(bits);
        }
        for (int i = 0; i < 4; i++) {
            const uint16_t bits = (uint16_t)(in[4 + i / 2] >> 16 * (i & 1));
            b[2 * part + (i & 1) + 8 * (i / 2)][group] = dtype ? bf16(bits) : f16(bits);
        }
    }
    for (int lane = 0; lane < WARP; lane++) {
        const int first = dtype == 2 ? 6 : 6;
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + (i & 1);
            double total = f32(mails[lane].in[first + i]);
            for (int k = 0; k < depth; k++) total += (double)a[row][k] * b[k][column];
            mails[lane].out[i] = of_f32((float)total);
        }
    }
}

/* Turns of threads */

static void meet(block *b, mail *mails) {
    for (int lane = 1; lane < WARP; lane++)
        if (mails[lane].kind != mails[0].kind || mails[lane].place != mails[0].place)
            fail(b, "the threads of a warp are at different instructions that all of them execute");
    if (mails[0].kind == FRAGMENTS) load_fragments(b, mails);
    else if (mails[0].kind == SHUFFLE) shuffle(b, mails, (int)mails[0].in[2]);
    else if (mails[0].kind == WARPGROUP) multiply_tiles(b, mails);
    else multiply(mails, (int)mails[0].in[10]);
}

/* Runs a thread until it waits or ends; its mail tells why. */
static void run_thread(const int64_t *code, uint8_t *registers, mail *m, block *b) {
    const int64_t *at = *(const int64_t **)registers;
    if (at == NULL) at = code;
    while (at) at = ((form)(uintptr_t)*at)(at, registers, m, b);
}

/* Runs the threads of a warp until each has ended or waits for other warps. Returns how many have ended in it. */
static uint32_t run_warp(block *b, const kernel *of, uint8_t *registers, mail *mails, uint8_t *waits, uint32_t first,
                         int is_turned) {
    const uint32_t end = first + WARP < b->threads ? first + WARP : b->threads;
    uint32_t done = 0;
    for (;;) {
        uint32_t wants = 0;
        for (uint32_t i = first; i < end; i++) {
            const uint32_t t = is_turned ? first + end - 1 - i : i;
            if (!waits[t]) {
                b->thread = t;
                run_thread(of->code, registers + t * of->bytes, &mails[t], b);
                waits[t] = 1;
                done += mails[t].kind == DONE;
            }
            wants += mails[t].kind >= SHUFFLE;
        }
        if (wants < WARP) return done;
        b->thread = first;
        meet(b, mails + first);
        memset(waits + first, 0, WARP);
    }
}

/* Runs one block; `registers` has memory for those of all threads. Between barriers, one warp after the other runs as
 * far as it can, and so do its threads, in an order that turns around at every barrier, and from one block to the next:
 * a missing barrier shows in one of them. In every second block with barriers in shared memory, one warp, each time
 * another one, is held back until no other warp can go on: a barrier that does not wait for it shows. */
static void run_block(block *b, const kernel *of, uint8_t *registers, mail *mails) {
    static uint8_t waits[MOST_THREADS];
    const uint32_t warps = (b->threads + WARP - 1) / WARP;
    uint32_t done = 0;
    memset(registers, 0, of->bytes * b->threads);
    memset(waits, 0, sizeof waits);
    memset(b->shared_written, 0, b->shared_bytes);
    for (uint32_t t = 0; t < b->threads; t++) {
        mails[t].kind = -1, mails[t].copy_count = mails[t].group = 0;
        mails[t].is_fenced = mails[t].group_of_products = mails[t].is_multiplying = 0;
        mails[t].store_count = mails[t].group_of_stores = 0;
    }
    b->barrier_count = 0;
    if (b->machine->races) begin_block(b->machine->races);
    const uint32_t held = b->number % 2 ? warps - 1 - b->number / 2 % warps : warps;
    for (uint32_t turn = b->number % 2; done < b->threads; turn++) {
        for (uint32_t i = 0; i < warps; i++) {
            const uint32_t warp = turn % 2 ? warps - 1 - i : i;
            if (warp == held && b->barrier_count) continue;
            done += run_warp(b, of, registers, mails, waits, WARP * warp, turn % 2);
        }
        uint32_t arrived = 0, woken = 0, can_go_on = 0;
        for (uint32_t t = 0; t < b->threads; t++) {
            b->thread = t;
            if (mails[t].kind == PHASE && has_ended(b, &mails[t])) waits[t] = 0, mails[t].kind = -1;
            if (!waits[t]) *(t / WARP == held ? &can_go_on : &woken) += 1;
        }
        if (woken) continue;
        if (can_go_on) {
            done += run_warp(b, of, registers, mails, waits, WARP * held, turn % 2);
            continue;
        }
        for (uint32_t t = 0; t < b->threads; t++) arrived += mails[t].kind == BARRIER;
        if (arrived + done < b->threads || (arrived == 0 && done < b->threads))
            fail(b, "deadlock: %u of %u threads wait at a barrier, %u have ended, the others wait for a phase", arrived,
                 b->threads, done);
        for (uint32_t t = 0; t < b->threads; t++)
            if (mails[t].kind == BARRIER) waits[t] = 0, mails[t].kind = -1;
        if (b->machine->races) pass_barrier(b->machine->races);
        if (b->machine->banks) settle_banks(b->machine->banks);
    }
    if (b->machine->banks) settle_banks(b->machine->banks);
    int left = b->tile_count;
    for (uint32_t t = 0; t < b->threads; t++) left += mails[t].copy_count + mails[t].store_count;
    if (left) fail(b, "a copy has not arrived when the block ends");
}

int run_grid(machine *m, const kernel *of, uint64_t bytes, uint32_t blocks, uint32_t threads, const uint8_t *parameters) {
    jmp_buf failure;
    const uint64_t shared_bytes = of->shared_bytes + bytes;
    block b = {.machine = m, .threads = threads, .blocks = blocks, .parameters = parameters, .shared_bytes = shared_bytes,
               .failure = &failure};
    uint8_t *registers = malloc(of->bytes * threads + 1);
    mail *mails = calloc(threads, sizeof *mails);
    b.shared = malloc(shared_bytes + 1);
    b.shared_written = malloc(shared_bytes + 1);
    if (!setjmp(failure))
        for (b.number = 0; b.number < blocks; b.number++) run_block(&b, of, registers, mails);
    m->first += blocks + 1;
    for (uint32_t t = 0; t < threads; t++) free(mails[t].copies), free(mails[t].stores);
    for (int i = 0; i < b.tile_count; i++) free(b.tiles[i].data);
    free(registers), free(mails), free(b.shared), free(b.shared_written);
    return m->error[0] != 0;
}
