/* The asynchronous parts of Hopper, for the machine of `machine.h`: barriers in shared memory, copies of boxes and of bytes,
 * and products of warpgroups. */
#include "machine.h"

#include <stdlib.h>

/* Barriers in shared memory */

static int number_of(block *b, uint64_t address) {
    for (int i = 0; i < b->barrier_count; i++)
        if (b->barriers[i].address == address) return i;
    fail(b, "there is no barrier at shared address %llu", (unsigned long long)address);
}

void create_barrier(block *b, uint64_t address, uint32_t arrivals) {
    if (address % 8 || address + 8 > b->shared_bytes || b->barrier_count == MOST_BARRIERS || arrivals == 0)
        fail(b, "wrong barrier at shared address %llu", (unsigned long long)address);
    begin_phases(b, b->barrier_count);
    b->barriers[b->barrier_count++] = (phase_barrier){address, arrivals, arrivals, 0, 0};
}

static void end_phase(block *b, int number) {
    phase_barrier *of = &b->barriers[number];
    if (of->pending || of->bytes) return;
    of->pending = of->count;
    of->parity ^= 1;
    end_phase_of_clock(b, number);
}

void arrive(block *b, uint64_t address, uint32_t bytes) {
    const int number = number_of(b, address);
    arrive_at_phase(b, number);
    b->barriers[number].bytes += bytes;
    b->barriers[number].pending--;
    end_phase(b, number);
}

/* Pieces of 16 bytes of a row of 128 bytes are exchanged. */
static uint64_t swizzle(uint64_t address) { return address ^ (address >> 7 & 7) << 4; }

static void receive_tiles(block *b, int number) {
    int kept = 0;
    for (int i = 0; i < b->tile_count; i++) {
        const tile_copy each = b->tiles[i];
        if (each.barrier != b->barriers[number].address) {
            b->tiles[kept++] = each;
            continue;
        }
        for (uint32_t n = 0; n < each.bytes; n++) {
            const uint64_t at = each.target + n;
            b->shared[each.is_swizzled ? swizzle(at) : at] = each.data[n];
        }
        memset(b->shared_written + each.target, 1, each.bytes);
        free(each.data);
        b->barriers[number].bytes -= each.bytes;
    }
    b->tile_count = kept;
    end_phase(b, number);
}

int has_passed(block *b, const mail *m) { return b->barriers[number_of(b, m->address)].parity != m->in[0]; }

int has_ended(block *b, const mail *m) {
    if (has_passed(b, m)) return 1;
    receive_tiles(b, number_of(b, m->address));
    return has_passed(b, m);
}

void pass_phase(block *b, const mail *m) { see_phase(b, number_of(b, m->address), m->in[0]); }

/* Copies */

/* Begins a copy to shared memory. Returns memory for its data, which is zero. */
static uint8_t *begin_copy(block *b, uint64_t target, uint32_t bytes, uint64_t barrier, int is_swizzled, const char *text) {
    if (target % (is_swizzled ? 1024 : 16) || target + bytes > b->shared_bytes || b->tile_count == MOST_TILES)
        fail(b, "wrong target %llu: %s", (unsigned long long)target, text);
    const int number = number_of(b, barrier);
    check_barrier_of_copy(b, number, text);
    check_copy(b, number, target, bytes, 1, text);
    memset(b->shared_written + target, 0, bytes);
    b->tiles[b->tile_count] = (tile_copy){target, barrier, bytes, is_swizzled, calloc(bytes, 1)};
    return b->tiles[b->tile_count++].data;
}

static const tile_map *map_at(block *b, uint64_t address, int rank, const char *text) {
    const tile_map *map = (const tile_map *)(uintptr_t)address;
    if (map->magic != MAP_MAGIC || (int)map->rank != rank) fail(b, "no tensor map of %d axes: %s", rank, text);
    return map;
}

/* Returns the number of elements from one of a box on that are adjacent in the tensor and inside of it, or that are all
 * outside; and the address of the first one, which is 0 outside. */
static uint32_t find_run(const tile_map *map, const int32_t *at, uint32_t n, uint64_t *address) {
    uint32_t rest = n / map->box[0];
    const int64_t first = (int64_t)at[0] + n % map->box[0], last = (int64_t)at[0] + map->box[0], end = (int64_t)map->sizes[0];
    int is_inside = first >= 0 && first < end;
    *address = map->base + (uint64_t)first * map->bytes;
    for (int i = 1; i < (int)map->rank; i++) {
        const int64_t place = (int64_t)at[i] + rest % map->box[i];
        rest /= map->box[i];
        is_inside &= place >= 0 && (uint64_t)place < map->sizes[i];
        *address += (uint64_t)place * map->steps[i - 1];
    }
    if (is_inside) return (uint32_t)((last < end ? last : end) - first);
    *address = 0;
    return (uint32_t)((first < 0 && last > 0 ? 0 : last) - first);
}

static uint32_t elements_of(const tile_map *map) {
    uint32_t elements = 1;
    for (uint32_t i = 0; i < map->rank; i++) elements *= map->box[i];
    return elements;
}

void copy_tile(block *b, uint64_t target, uint64_t at_map, const int32_t *at, int rank, uint64_t barrier, const char *text) {
    const tile_map *map = map_at(b, at_map, rank, text);
    const uint32_t elements = elements_of(map);
    uint8_t *data = begin_copy(b, target, elements * map->bytes, barrier, 1, text);
    uint64_t address;
    for (uint32_t n = 0, count; n < elements; n += count) {
        count = find_run(map, at, n, &address);
        if (address == 0) continue;
        check_copy(b, number_of(b, barrier), address, count * map->bytes, 0, text);
        for (uint32_t i = 0; i < count * map->bytes; i += map->bytes)
            memcpy(data + n * map->bytes + i, global_unordered(b, address + i, map->bytes, 0, text), map->bytes);
    }
}

static void check_pieces(block *b, uint64_t address, uint32_t bytes, const char *text) {
    if (address % 16 || bytes % 16) fail(b, "no whole pieces of 16 bytes: %s", text);
}

void copy_bytes(block *b, uint64_t target, uint64_t source, uint32_t bytes, uint64_t barrier, const char *text) {
    check_pieces(b, source, bytes, text);
    uint8_t *data = begin_copy(b, target, bytes, barrier, 0, text);
    check_copy(b, number_of(b, barrier), source, bytes, 0, text);
    for (uint32_t i = 0; i < bytes; i += 16) memcpy(data + i, global_unordered(b, source + i, 16, 0, text), 16);
}

static store *begin_store(block *b, mail *m, uint64_t source, uint32_t bytes, const char *text) {
    if (source + bytes > b->shared_bytes) fail(b, "wrong source %llu: %s", (unsigned long long)source, text);
    check_store(b, m->group_of_stores, source, bytes, 0, text);
    if (m->store_count == m->store_capacity) {
        m->store_capacity = 2 * m->store_capacity + 8;
        m->stores = realloc(m->stores, (size_t)m->store_capacity * sizeof *m->stores);
    }
    m->stores[m->store_count] = (store){.source = source, .bytes = bytes, .group = m->group_of_stores, .text = text};
    return &m->stores[m->store_count++];
}

void store_tile(block *b, mail *m, uint64_t at_map, const int32_t *at, int rank, uint64_t source, const char *text) {
    const tile_map *map = map_at(b, at_map, rank, text);
    const uint32_t elements = elements_of(map);
    if (source % 1024) fail(b, "wrong source %llu: %s", (unsigned long long)source, text);
    store *made = begin_store(b, m, source, elements * map->bytes, text);
    made->map = at_map;
    memcpy(made->at, at, (size_t)rank * sizeof *at);
    uint64_t address;
    for (uint32_t n = 0, count; n < elements; n += count) {
        count = find_run(map, at, n, &address);
        if (address) check_store(b, m->group_of_stores, address, count * map->bytes, 1, text);
    }
}

void store_bytes(block *b, mail *m, uint64_t target, uint64_t source, uint32_t bytes, const char *text) {
    check_pieces(b, target, bytes, text);
    check_pieces(b, source, bytes, text);
    begin_store(b, m, source, bytes, text)->target = target;
    check_store(b, m->group_of_stores, target, bytes, 1, text);
}

static void finish_store(block *b, const store *of) {
    const tile_map *map = (const tile_map *)(uintptr_t)of->map;
    if (map == NULL) {
        for (uint32_t i = 0; i < of->bytes; i += 16)
            memcpy(global_unordered(b, of->target + i, 16, 1, of->text), shared_unordered(b, of->source + i, 16, 0, of->text), 16);
        return;
    }
    uint64_t address;
    for (uint32_t n = 0, count; n < of->bytes / map->bytes; n += count) {
        count = find_run(map, of->at, n, &address);
        for (uint32_t i = 0; address && i < count; i++) {
            const uint64_t from = swizzle(of->source + (n + i) * map->bytes);
            memcpy(global_unordered(b, address + i * map->bytes, map->bytes, 1, of->text),
                   shared_unordered(b, from, map->bytes, 0, of->text), map->bytes);
        }
    }
}

void wait_for_stores(block *b, mail *m, int left, int is_written) {
    int kept = 0;
    for (int i = 0; i < m->store_count; i++) {
        if (m->stores[i].group < m->group_of_stores - left) finish_store(b, &m->stores[i]);
        else m->stores[kept++] = m->stores[i];
    }
    m->store_count = kept;
    see_stores(b, m->group_of_stores - left, is_written);
}

/* Products of warpgroups */

/* Returns the address of an element of a factor: its row or column, and its depth, in a tile that a descriptor describes. */
static uint64_t address_in(uint64_t tile, int is_turned, int side, int depth) {
    const uint64_t begin = (tile & 0x3fff) << 4, leading = (tile >> 16 & 0x3fff) << 4, stride = (tile >> 32 & 0x3fff) << 4;
    return swizzle(is_turned
        ? begin + side / 64 * leading + depth / 8 * stride + (uint64_t)(depth % 8) * 128 + (uint64_t)(side % 64) * 2
        : begin + side / 8 * stride + (uint64_t)(side % 8) * 128 + (uint64_t)depth * 2);
}

/* Checks the accesses to so many rows or columns of a factor, from the first one on: in pieces of 8 elements, which lie
 * along the depth, or if the factor is turned, along its side. */
static void check_factors(block *b, const mail *m, int number, int first, int count) {
    const int is_turned = (int)m->in[2 + number], sides = is_turned ? 8 : 1, depths = is_turned ? 1 : 8;
    for (int depth = 0; depth < 16; depth += depths)
        for (int side = first; side < first + count; side += sides)
            check_factor(b, m->group_of_products, address_in(m->tiles[number], is_turned, side, depth), 16);
}

static uint16_t element_of(block *b, uint64_t tile, int is_turned, int side, int depth) {
    uint16_t bits;
    memcpy(&bits, shared_unordered(b, address_in(tile, is_turned, side, depth), 2, 0, "wgmma"), 2);
    return bits;
}

void multiply_tiles(block *b, mail *mails) {
    const mail *first = &mails[0];
    const int columns = (int)first->in[0], is_bfloat = (int)first->in[1], warp = (int)(b->thread / WARP);
    static float a[16][16], c[16][256];
    for (int lane = 1; lane < WARP; lane++)
        if (memcmp(mails[lane].tiles, first->tiles, sizeof first->tiles)) fail(b, "the threads of a warp multiply different tiles");
    if (!first->is_fenced) fail(b, "no wgmma.fence comes before a product");
    for (int n = 0; n < 2; n++)
        if (first->tiles[n] >> 62 != 1 || (first->tiles[n] >> 49 & 7)) fail(b, "wrong descriptor of a tile");
    begin_product(b);
    check_factors(b, first, 0, 16 * (warp % 4), 16);
    check_factors(b, first, 1, 0, columns);
    for (int k = 0; k < 16; k++) {
        for (int row = 0; row < 16; row++) {
            const uint16_t bits = element_of(b, first->tiles[0], (int)first->in[2], 16 * (warp % 4) + row, k);
            a[row][k] = is_bfloat ? bf16(bits) : f16(bits);
        }
        for (int column = 0; column < columns; column++) {
            const uint16_t bits = element_of(b, first->tiles[1], (int)first->in[3], column, k);
            c[k][column] = is_bfloat ? bf16(bits) : f16(bits);
        }
    }
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < columns / 2; i++) {
            const int row = lane / 4 + 8 * (i / 2 % 2), column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
            double total = first->in[4] ? f32(mails[lane].sums[i]) : 0;
            for (int k = 0; k < 16; k++) total += (double)a[row][k] * c[k][column];
            mails[lane].sums[i] = of_f32((float)total);
        }
}

void wait_for_products(block *b, mail *m, int left) {
    m->is_fenced = 0;
    see_products(b, m->group_of_products - left);
}

void touch_sums(block *b, mail *m, const char *text) {
    m->is_fenced = 0;
    if (m->is_multiplying && b->machine->races)
        fail(b, "a race: no wgmma.wait_group is between products and another access to their sums: %s", text);
}
