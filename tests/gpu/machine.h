/* A GPU in C, for the translation of PTX: the threads of a block in turn, and memory in which every access is checked.
 *
 * A thread runs until it waits for others, at a barrier or at an exchange within its warp, or until its end. Each thread
 * runs as far as it can before the next one begins, so that a missing barrier shows: what another thread should have
 * written was never written.
 */
#ifndef MACHINE_H
#define MACHINE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct allocation {
    uint64_t begin, end;
    uint8_t *written; /* a flag for each byte */
    uint32_t *writers, *readers; /* for each byte, the number of a block, in the order of all launches */
} allocation;

/* The counts of accesses to the banks of shared memory; see banks.c. `worst` is the instruction of the access with the
 * most conflicts. */
typedef struct banks banks;
typedef struct bank_counts { uint64_t phases, conflicts, most; const char *worst; } bank_counts;

/* The last accesses to each byte; see races.c. */
typedef struct races races;

typedef struct machine {
    allocation *allocations; /* sorted by address */
    int count;
    char error[512];
    uint32_t first; /* the number of the first block of a launch; 0 is none */
    banks *banks; /* NULL: conflicts are not counted */
    races *races; /* NULL: races within a block are not searched */
} machine;

enum { DONE, BARRIER, PHASE, SHUFFLE, MATRIX, FRAGMENTS, WARPGROUP };
enum { WARP = 32, MOST_THREADS = 1024, SHARED_BYTES = 1 << 18 };

/* An asynchronous copy to shared memory, of 16 bytes or fewer, that belongs to a group of its thread. */
typedef struct copy {
    uint64_t target;
    unsigned bytes;
    int group;
    uint8_t data[16];
} copy;

/* A copy from shared to global memory of a thread's group, of bytes or of a box: then `map` is its tensor map. */
typedef struct store {
    uint64_t target, source, map;
    uint32_t bytes;
    int32_t at[5];
    int group;
    const char *text;
} store;

/* The value that a thread gives to a barrier or a shuffle, and the value that it receives; its copies that have not
 * arrived. */
typedef struct mail {
    int kind, place; /* which instruction */
    uint32_t in[32], out[8];
    copy *copies;
    int copy_count, copy_capacity, group;
    uint64_t address, tiles[2]; /* of a barrier in shared memory; of the factors of a product */
    uint32_t sums[128]; /* of products; not in registers while `is_multiplying` */
    int is_multiplying, is_fenced, group_of_products;
    store *stores;
    int store_count, store_capacity, group_of_stores;
} mail;

/* A tensor map as the fake driver writes it. */
typedef struct tile_map {
    uint64_t magic, base, sizes[5], steps[4];
    uint32_t box[5], rank, bytes; /* of an element */
} tile_map;
enum { MAP_MAGIC = 0x7113a9, NO_SUM = 0x7fffbad0 };

/* A barrier in shared memory; a copy to shared memory that has not arrived. Boxes are swizzled. */
typedef struct phase_barrier { uint64_t address; uint32_t count, pending, parity; int64_t bytes; } phase_barrier;
typedef struct tile_copy { uint64_t target, barrier; uint32_t bytes; int is_swizzled; uint8_t *data; } tile_copy;
enum { MOST_BARRIERS = 64, MOST_TILES = 64 };

typedef struct block {
    machine *machine;
    uint32_t thread, threads, number, blocks;
    uint8_t *shared, *shared_written;
    uint64_t shared_bytes;
    const uint8_t *parameters;
    void *failure; /* a jmp_buf */
    int barrier_count, tile_count;
    phase_barrier barriers[MOST_BARRIERS];
    tile_copy tiles[MOST_TILES];
} block;

_Noreturn void fail(block *b, const char *format, ...);
allocation *find(machine *m, uint64_t address);
/* Check an access of so many bytes, and return where the bytes are; `text` is the instruction. Those of asynchronous
 * operations are not accesses of a thread. */
void *global(block *b, uint64_t address, unsigned bytes, int is_write, const char *text);
void *global_unordered(block *b, uint64_t address, unsigned bytes, int is_write, const char *text);
void *shared(block *b, uint64_t address, unsigned bytes, int is_write, const char *text);
void *shared_unordered(block *b, uint64_t address, unsigned bytes, int is_write, const char *text);
void *local(block *b, uint64_t address, unsigned bytes, uint8_t *depot, uint64_t size, const char *text);

/* Note an access of a thread, or count those of `ldmatrix` by the addresses of its rows. Accesses are counted when all
 * threads have passed a barrier, and at the end of a block. */
banks *create_banks(void);
void note_access(banks *of, uint32_t thread, uint64_t address, unsigned bytes, const char *text);
void count_rows(banks *of, const uint64_t *addresses, int matrices);
void settle_banks(banks *of);
bank_counts read_banks(const banks *of);
void free_banks(banks *of);

/* Check that no other thread has accessed the bytes since the last barrier: at all, or for a read, by a write. A block
 * begins as if all its threads had passed a barrier. */
races *create_races(void);
void check_race(block *b, uint32_t thread, uint64_t address, unsigned bytes, int is_write, const char *text);
void begin_block(races *of);
void pass_barrier(races *of);
void free_races(races *of);

/* Order the threads by barriers in shared memory, which have numbers, and by fences; see clocks.c. Groups are counted from
 * the beginning of a block. */
void begin_phases(block *b, int barrier);
void arrive_at_phase(block *b, int barrier);
void check_barrier_of_copy(block *b, int barrier, const char *text);
void end_phase_of_clock(block *b, int barrier);
void see_phase(block *b, int barrier, uint32_t parity);
void see_products(block *b, int groups);
void see_stores(block *b, int groups, int is_written);
void fence_proxies(block *b);

/* Check asynchronous accesses, when they begin: of copies to shared memory, of copies from there in a group, and of the
 * factors of a product; see async_races.c. */
void check_copy(block *b, int barrier, uint64_t address, uint64_t bytes, int is_write, const char *text);
void check_store(block *b, int group, uint64_t address, uint64_t bytes, int is_write, const char *text);
void begin_product(block *b);
void check_factor(block *b, int group, uint64_t address, uint64_t bytes);

/* Begin a copy of `bytes`, the first `read` from memory and the others zero; wait for all groups but the last `left`. A
 * copy arrives as late as possible, and its target must not be read before: it counts as never written until then. */
void copy_async(block *b, mail *m, uint64_t target, uint64_t source, unsigned bytes, unsigned read, const char *text);
void wait_for_copies(block *b, mail *m, int left);

/* Barriers in shared memory. A copy arrives when a thread waits for its barrier and no thread can go on. Its target must
 * not be read before. */
void create_barrier(block *b, uint64_t address, uint32_t arrivals);
void arrive(block *b, uint64_t address, uint32_t bytes);
/* Whether the phase of a wait has ended: by now, or with the copies that arrive then. */
int has_passed(block *b, const mail *m);
int has_ended(block *b, const mail *m);
void pass_phase(block *b, const mail *m);
void copy_tile(block *b, uint64_t target, uint64_t map, const int32_t *at, int rank, uint64_t barrier, const char *text);
void copy_bytes(block *b, uint64_t target, uint64_t source, uint32_t bytes, uint64_t barrier, const char *text);

/* Copies from shared to global memory, in groups of a thread; wait for all groups but the last `left`. A copy happens as
 * late as possible. `is_written` tells whether a wait is for the writes too, or for the reads alone. */
void store_tile(block *b, mail *m, uint64_t map, const int32_t *at, int rank, uint64_t source, const char *text);
void store_bytes(block *b, mail *m, uint64_t target, uint64_t source, uint32_t bytes, const char *text);
void wait_for_stores(block *b, mail *m, int left, int is_written);

/* Products of a warpgroup. Until a wait for all of them, their sums are NaN in the registers. Each warp computes its own
 * 16 rows. */
void multiply_tiles(block *b, mail *mails);
void wait_for_products(block *b, mail *m, int left);
/* Check an access of another instruction to the registers of sums. */
void touch_sums(block *b, mail *m, const char *text);

/* Threaded code: each instruction is the address of a function, and its operands. The function returns the next
 * instruction; where the thread waits, it returns NULL, and the memory of the thread begins with the next instruction. */
typedef const int64_t *(*form)(const int64_t *o, uint8_t *R, mail *M, block *B);

/* A kernel: its code, the memory of a thread, shared memory, and the sizes of its parameters, which end with a zero. */
typedef struct kernel {
    const char *name;
    const int64_t *code, *parameters;
    uint64_t bytes, shared_bytes;
} kernel;

/* The kernels and the constants of modules, from a file that threaded_code.py has written. */
typedef struct constant { void *begin; uint64_t bytes; } constant;
typedef struct program { kernel *kernels; constant *constants; int kernel_count, constant_count; } program;

/* Returns the program of a file, one for each process; NULL and a message where it cannot be loaded. */
const program *load_program(const char *path, char *message, size_t capacity);
const kernel *find_kernel(const program *of, const char *name);

/* Runs a kernel with some bytes of shared memory beside its own; returns whether there is an error. */
int run_grid(machine *m, const kernel *of, uint64_t bytes, uint32_t blocks, uint32_t threads, const uint8_t *parameters);

/* The parts of the functions of instructions: registers at their offsets in the memory of a thread. */
#define U8(offset) (*(uint8_t *)(R + (offset)))
#define U16(offset) (*(uint16_t *)(R + (offset)))
#define U32(offset) (*(uint32_t *)(R + (offset)))
#define U64(offset) (*(uint64_t *)(R + (offset)))
#define F32(offset) (*(float *)(R + (offset)))
#define F64(offset) (*(double *)(R + (offset)))
#define END { M->kind = DONE; return NULL; }
#define WAIT(reason, at) { M->kind = reason; M->place = (int)(at); *(const int64_t **)R = o + LENGTH; return NULL; }

/* Numbers by their bits */

static inline float f32(uint32_t bits) { float v; memcpy(&v, &bits, 4); return v; }
static inline uint32_t of_f32(float v) { uint32_t bits; memcpy(&bits, &v, 4); return bits; }
static inline double f64(uint64_t bits) { double v; memcpy(&v, &bits, 8); return v; }
static inline uint64_t of_f64(double v) { uint64_t bits; memcpy(&bits, &v, 8); return bits; }
static inline float f16(uint16_t bits) { _Float16 v; memcpy(&v, &bits, 2); return (float)v; }
static inline uint16_t of_f16(float v) { _Float16 h = (_Float16)v; uint16_t bits; memcpy(&bits, &h, 2); return bits; }
static inline uint16_t f64_to_f16(double v) { _Float16 h = (_Float16)v; uint16_t bits; memcpy(&bits, &h, 2); return bits; }
static inline float bf16(uint16_t bits) { return f32((uint32_t)bits << 16); }
static inline uint16_t of_bf16(float v) {
    const uint32_t bits = of_f32(v);
    return v != v ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define CLAMPED(name, from, to, low, high) \
    static inline to name(from v) { return v != v ? 0 : v <= (from)(low) ? (low) : v >= (from)(high) ? (high) : (to)v; }
CLAMPED(to_s32, double, int32_t, INT32_MIN, INT32_MAX)
CLAMPED(to_u32, double, uint32_t, 0, UINT32_MAX)
CLAMPED(to_s64, double, int64_t, INT64_MIN, INT64_MAX)
CLAMPED(to_u64, double, uint64_t, 0, UINT64_MAX)
CLAMPED(to_s16, double, int16_t, INT16_MIN, INT16_MAX)
CLAMPED(to_u16, double, uint16_t, 0, UINT16_MAX)
CLAMPED(to_s8, double, int8_t, INT8_MIN, INT8_MAX)
CLAMPED(to_u8, double, uint8_t, 0, UINT8_MAX)

static inline double fmax_nan(double a, double b) { return a != a || b != b ? NAN : a == b ? (signbit(a) ? b : a) : a > b ? a : b; }
static inline double fmin_nan(double a, double b) { return a != a || b != b ? NAN : a == b ? (signbit(a) ? a : b) : a < b ? a : b; }
static inline double fmax_num(double a, double b) { return a != a ? b : b != b ? a : fmax_nan(a, b); }
static inline double fmin_num(double a, double b) { return a != a ? b : b != b ? a : fmin_nan(a, b); }
static inline uint64_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
    const uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t s = selector >> 4 * i & 15, byte = bytes >> 8 * (s & 7) & 255;
        result |= (s & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
    }
    return result;
}

#endif
