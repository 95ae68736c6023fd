/* A driver without a device: memory is that of the host, and kernels run as the code that a callback makes of PTX.
 *
 * It logs each call, fails where a test tells it to, and knows what was allocated: `fake_left` tells what was never
 * released. `Machine` in fake_driver.py uses the functions whose names begin with `fake_`. A process without one runs the
 * command `$FAKE_CUDA_COMPILER` for each module, and has `$FAKE_CUDA_BYTES` of memory. `$FAKE_CUDA_CAPABILITY` is its
 * architecture; the process ends in the launch `$FAKE_CUDA_EXIT_AT`, and the launch `$FAKE_CUDA_FAULT_AT` fails. Threads
 * call it one at a time.
 */
#define _GNU_SOURCE
#include "machine.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t pointer;
typedef int (*compiler)(const char *ptx, char *program, int capacity, char *log, int log_bytes);
typedef struct function { const kernel *kernel; unsigned most_shared; struct function *next; } function;
typedef struct module { const program *program; function *functions; } module;

/* A stream, and the operations that it records while it is captured; a graph, and a graph that can be launched. */
typedef struct operation {
    function *f; /* NULL: a copy, or two words if there is no source */
    uint32_t blocks, threads, shared, word;
    uint64_t target, source, bytes;
    uint8_t parameters[1024];
} operation;
typedef struct graph { int count, capacity; operation *operations; } graph;
typedef struct stream { graph *captured; struct stream *next; } stream;

enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NO_DEVICE = 100, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NO_BINARY = 209, INVALID_PTX = 218, NOT_FOUND = 500,
       ILLEGAL_ADDRESS = 700, NOT_WHILE_CAPTURED = 900, INJECTED = 999 };
/* The bytes of shared memory that a launch may ask for: without an attribute, and at most. */
enum { MOST = 4096, MOST_STATIC_SHARED = 48 << 10, MOST_SHARED = 227 << 10 };

static allocation slots[MOST];
static machine device = {.allocations = slots, .first = 1};
static void *blocks_of[MOST];
static compiler compile;
static char injected[64], log_text[1 << 16];
static int capability = 80, devices = 1, processors = 4, contexts, streams, events, modules, graphs, launches, countdown;
static uint64_t reserved; /* the bytes of writable memory that the driver reserves when it starts */
static int exit_at, fault_at; /* numbers of launches; 0: none */
static stream *known_streams;
static _Thread_local int depth;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t limit = 1ull << 33, used;

void fake_set(compiler made, int cc, int count, uint64_t bytes) {
    compile = made, capability = cc, devices = count, limit = bytes;
    device.error[0] = 0;
}
void fake_reserve(uint64_t bytes) { reserved = bytes; }
/* The multiprocessors of the device, for programs that are loaded from now on. */
void fake_processors(int count) { processors = count; }
/* Lets the nth call of a function fail, with a result. */
static int injected_result = INJECTED;
void fake_fail_with(const char *function, int nth, int result) {
    snprintf(injected, sizeof injected, "%s", function);
    countdown = nth, injected_result = result;
}
void fake_fail(const char *function, int nth) { fake_fail_with(function, nth, INJECTED); }
const char *fake_error(void) { return device.error; }
const char *fake_log(void) { return log_text; }
/* The version of the driver. */
static int driver_version = 12090;
void fake_version(int version) { driver_version = version; }
/* The PTX of each cubin, which a test registers: the driver runs the PTX, since no CPU runs machine code of a GPU. */
static struct source { const uint8_t *cubin; uint64_t bytes; char *ptx; struct source *next; } *sources;
void fake_know(const void *cubin, uint64_t bytes, const char *ptx) {
    struct source *made = malloc(sizeof *made);
    *made = (struct source){memcpy(malloc(bytes), cubin, bytes), bytes, strdup(ptx), sources};
    sources = made;
}
/* The cubins that were loaded since the log was cleared. */
static int loaded_cubins;
int fake_cubins(void) { return loaded_cubins; }
/* Counts the bank conflicts of all launches from now on, or no longer; `fake_banks` returns the counts. */
void fake_count_banks(int is_wanted) {
    if (device.banks) free_banks(device.banks);
    device.banks = is_wanted ? create_banks() : NULL;
}
/* Searches all launches from now on for races within their blocks, or no longer. */
void fake_find_races(int is_wanted) {
    if (device.races) free_races(device.races);
    device.races = is_wanted ? create_races() : NULL;
}
bank_counts fake_banks(void) { return read_banks(device.banks); }
/* The device that all memory belongs to. */
static int owner;
void fake_owner(int number) { owner = number; }
/* The contexts of a device that are in use. */
static int contexts_of[2];
int fake_contexts(int number) { return contexts_of[number]; }
void fake_clear(void) { log_text[0] = 0; device.error[0] = 0; launches = loaded_cubins = 0; }
int fake_launches(void) { return launches; }
/* The blocks of the last launches. */
static uint32_t launched_blocks[256];
int fake_blocks_of(int number) { return (int)launched_blocks[number % 256]; }
int fake_left(void) { return device.count + contexts + streams + events + modules + graphs; }
int fake_depth(void) { return depth; }

static int wants_failure(const char *name) {
    const size_t length = strlen(log_text);
    snprintf(log_text + length, sizeof log_text - length, "%s\n", name);
    if (strcmp(name, injected) != 0 || --countdown > 0) return 0;
    injected[0] = 0;
    return 1;
}

/* Threads that meet: a call of the function waits, for a second at most, until another thread calls it too. What one
 * lock guards is never reached by two. */
static char meeting[64];
static int arrived, most_arrived;
static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrival = PTHREAD_COND_INITIALIZER;

/* Lets the next calls of a function meet; the first call that has waited ends it. */
void fake_meet(const char *function) {
    pthread_mutex_lock(&door);
    snprintf(meeting, sizeof meeting, "%s", function);
    arrived = most_arrived = 0;
    pthread_mutex_unlock(&door);
}
/* The threads that wait in the function, and the most that were in it at once. */
int fake_arrived(void) { pthread_mutex_lock(&door); const int n = arrived; pthread_mutex_unlock(&door); return n; }
int fake_most_arrived(void) { return most_arrived; }

static void meet(const char *name) {
    pthread_mutex_lock(&door);
    if (strcmp(name, meeting) == 0) {
        if (++arrived > most_arrived) most_arrived = arrived;
        pthread_cond_broadcast(&arrival);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 1;
        while (most_arrived < 2 && pthread_cond_timedwait(&arrival, &door, &until) == 0) {}
        arrived--;
        meeting[0] = 0;
    }
    pthread_mutex_unlock(&door);
}
static int take(void) { return pthread_mutex_lock(&lock); }
static void leave(int *held) { (void)held, pthread_mutex_unlock(&lock); }
#define BEGIN(name) \
    meet(name); \
    __attribute__((cleanup(leave), unused)) int held = take(); \
    if (wants_failure(name)) return injected_result
#define INSIDE(name) BEGIN(name); if (depth == 0) return INVALID_CONTEXT

int cuInit(unsigned flags) {
    (void)flags;
    BEGIN("cuInit");
    const char *bytes = getenv("FAKE_CUDA_BYTES"), *newer = getenv("FAKE_CUDA_CAPABILITY");
    const char *last = getenv("FAKE_CUDA_EXIT_AT"), *wrong = getenv("FAKE_CUDA_FAULT_AT");
    if (compile == NULL && bytes) limit = strtoull(bytes, NULL, 10);
    if (compile == NULL && newer) capability = atoi(newer);
    exit_at = last ? atoi(last) : 0, fault_at = wrong ? atoi(wrong) : 0;
    const int flags_of_map = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (reserved && mmap(NULL, reserved, PROT_READ | PROT_WRITE, flags_of_map, -1, 0) == MAP_FAILED) return NO_MEMORY;
    return devices ? OK : NO_DEVICE;
}
int cuDeviceGetCount(int *count) { BEGIN("cuDeviceGetCount"); *count = devices; return OK; }
int cuDeviceGet(int *number, int ordinal) { BEGIN("cuDeviceGet"); *number = ordinal; return OK; }
int cuDeviceGetAttribute(int *value, int attribute, int number) {
    (void)number;
    BEGIN("cuDeviceGetAttribute");
    *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : attribute == 16 ? processors
           : attribute == 38 ? 1 << 16 : 0;
    return OK;
}
static char device_named[64] = "a device in C";
void fake_name(const char *name) { snprintf(device_named, sizeof device_named, "%s", name); }
int cuDeviceGetName(char *name, int bytes, int number) {
    (void)number;
    BEGIN("cuDeviceGetName");
    snprintf(name, (size_t)bytes, "%s", device_named);
    return OK;
}
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    BEGIN("cuMemGetInfo");
    *free_bytes = limit - used, *total = limit;
    return OK;
}
int cuDevicePrimaryCtxRetain(void **context, int number) {
    BEGIN("cuDevicePrimaryCtxRetain");
    *context = &device, contexts++, contexts_of[number]++;
    return OK;
}
int cuDevicePrimaryCtxRelease_v2(int number) {
    BEGIN("cuDevicePrimaryCtxRelease");
    contexts--, contexts_of[number]--;
    return OK;
}
int cuCtxPushCurrent_v2(void *context) { (void)context; BEGIN("cuCtxPushCurrent"); depth++; return OK; }
int cuCtxPopCurrent_v2(void **context) { BEGIN("cuCtxPopCurrent"); *context = &device, depth--; return OK; }

static void insert(uint64_t begin, uint64_t bytes, void *block, int is_written) {
    int i = device.count++;
    for (; i > 0 && slots[i - 1].begin > begin; i--) slots[i] = slots[i - 1], blocks_of[i] = blocks_of[i - 1];
    slots[i] = (allocation){begin, begin + bytes, calloc(bytes + 1, 1), calloc(bytes + 1, 4), calloc(bytes + 1, 4)};
    if (is_written) memset(slots[i].written, 1, bytes);
    blocks_of[i] = block;
}
static void drop(int i) {
    free(slots[i].written), free(slots[i].writers), free(slots[i].readers), free(blocks_of[i]);
    device.count--;
    for (; i < device.count; i++) slots[i] = slots[i + 1], blocks_of[i] = blocks_of[i + 1];
}
int cuMemAlloc_v2(pointer *result, size_t bytes) {
    INSIDE("cuMemAlloc");
    if (bytes == 0 || device.count == MOST) return INVALID;
    if (used + bytes > limit) return NO_MEMORY;
    char *block = malloc(bytes + 1024);
    memset(block, 0xA5, bytes + 1024);
    *result = ((uint64_t)(uintptr_t)block + 511) / 512 * 512;
    insert(*result, bytes, block, 0);
    used += bytes;
    return OK;
}
int cuMemFree_v2(pointer freed) {
    INSIDE("cuMemFree");
    for (int i = 0; i < device.count; i++)
        if (slots[i].begin == freed) {
            used -= slots[i].end - slots[i].begin;
            drop(i);
            return OK;
        }
    return INVALID;
}
static int move(uint64_t target, uint64_t source, size_t bytes, int to_device, int from_device) {
    allocation *t = to_device ? find(&device, target) : NULL, *s = from_device ? find(&device, source) : NULL;
    if ((to_device && (t == NULL || target + bytes > t->end)) || (from_device && (s == NULL || source + bytes > s->end)))
        return INVALID;
    if (to_device && from_device) memmove(t->written + (target - t->begin), s->written + (source - s->begin), bytes);
    else if (to_device) memset(t->written + (target - t->begin), 1, bytes);
    else if (memchr(s->written + (source - s->begin), 0, bytes)) {
        if (!device.error[0])
            snprintf(device.error, sizeof device.error, "the host reads memory that was never written");
        return ILLEGAL_ADDRESS;
    }
    memmove((void *)(uintptr_t)target, (const void *)(uintptr_t)source, bytes);
    return OK;
}
/* The graph that a stream records, or NULL. A caller's stream may be any number. */
static graph *recorded_by(const void *given) {
    for (stream *each = known_streams; each; each = each->next)
        if (each == given) return each->captured;
    return NULL;
}
static operation *add_operation(graph *to) {
    if (to->count == to->capacity) {
        to->capacity = 2 * to->capacity + 8;
        to->operations = realloc(to->operations, (size_t)to->capacity * sizeof *to->operations);
    }
    operation *made = &to->operations[to->count++];
    return memset(made, 0, sizeof *made);
}
static int run_operation(const operation *each) {
    if (each->f) {
        launched_blocks[launches++ % 256] = each->blocks;
        if (launches == exit_at) _exit(7);
        if (launches == fault_at) snprintf(device.error, sizeof device.error, "an injected fault");
        /* Like a GPU, it reports a failure when the host next waits. */
        if (!device.error[0]) run_grid(&device, each->f->kernel, each->shared, each->blocks, each->threads, each->parameters);
        return OK;
    }
    if (each->source) return move(each->target, each->source, each->bytes, 1, 1);
    return move(each->target, (uint64_t)(uintptr_t)&each->word, 4, 1, 0);
}
/* Runs an operation, or records it. */
static int queue(const operation *each, const void *stream) {
    graph *record = recorded_by(stream);
    if (record == NULL) return run_operation(each);
    *add_operation(record) = *each;
    return OK;
}
static void free_graph(graph *g) { free(g->operations), free(g), graphs--; }

int cuMemcpyHtoDAsync_v2(pointer target, const void *source, size_t bytes, void *stream) {
    INSIDE("cuMemcpyHtoDAsync");
    /* A graph would read the memory of the host whenever it is launched. */
    if (recorded_by(stream)) return NOT_WHILE_CAPTURED;
    return move(target, (uint64_t)(uintptr_t)source, bytes, 1, 0);
}
int cuMemcpyDtoHAsync_v2(void *target, pointer source, size_t bytes, void *stream) {
    INSIDE("cuMemcpyDtoHAsync");
    if (recorded_by(stream)) return NOT_WHILE_CAPTURED;
    return move((uint64_t)(uintptr_t)target, source, bytes, 0, 1);
}
int cuMemcpyDtoDAsync_v2(pointer target, pointer source, size_t bytes, void *stream) {
    INSIDE("cuMemcpyDtoDAsync");
    const operation made = {.target = target, .source = source, .bytes = bytes};
    return queue(&made, stream);
}
int cuMemsetD32Async(pointer target, unsigned word, size_t words, void *stream) {
    INSIDE("cuMemsetD32Async");
    if (words != 1 || target % 4) return INVALID;
    const operation made = {.target = target, .word = word};
    return queue(&made, stream);
}
int cuStreamBeginCapture_v2(stream *s, int mode) {
    INSIDE("cuStreamBeginCapture");
    if (mode < 0 || mode > 2) return INVALID;
    for (stream *each = known_streams; each; each = each->next)
        if (each == s && each->captured == NULL) {
            s->captured = calloc(1, sizeof(graph)), graphs++;
            return OK;
        }
    return INVALID;
}
int cuStreamEndCapture(stream *s, graph **result) {
    INSIDE("cuStreamEndCapture");
    *result = recorded_by(s);
    if (*result == NULL) return INVALID;
    s->captured = NULL;
    return OK;
}
int cuGraphInstantiateWithFlags(graph **result, const graph *g, unsigned long long flags) {
    INSIDE("cuGraphInstantiateWithFlags");
    if (flags || g->count == 0) return INVALID;
    graph *made = calloc(1, sizeof *made);
    for (int i = 0; i < g->count; i++) *add_operation(made) = g->operations[i];
    graphs++, *result = made;
    return OK;
}
int cuGraphLaunch(const graph *exec, void *stream) {
    INSIDE("cuGraphLaunch");
    if (recorded_by(stream)) return NOT_WHILE_CAPTURED;
    for (int i = 0, result; i < exec->count; i++)
        if ((result = run_operation(&exec->operations[i]))) return result;
    return OK;
}
int cuGraphExecDestroy(graph *exec) { INSIDE("cuGraphExecDestroy"); free_graph(exec); return OK; }
int cuGraphDestroy(graph *g) { INSIDE("cuGraphDestroy"); free_graph(g); return OK; }
/* The files that the command has made of the modules of artifacts. */
static struct compiled { char artifact[512], program[512]; struct compiled *next; } *all_compiled;

/* Returns the file that has the first kernel of a module, if the command has made it of an earlier module of the
 * artifact; else NULL. */
static const char *find_compiled(const char *artifact, const char *ptx) {
    char name[320];
    const char *entry = strstr(ptx, ".entry ");
    if (entry == NULL || sscanf(entry, ".entry %319[A-Za-z0-9_$.]", name) != 1) return NULL;
    for (struct compiled *each = all_compiled; each; each = each->next) {
        char unused[8];
        const program *made = strcmp(each->artifact, artifact) ? NULL : load_program(each->program, unused, sizeof unused);
        if (made && find_kernel(made, name)) return each->program;
    }
    return NULL;
}
/* The command reads PTX from a file, and the other modules of the artifact that has it, and prints the path of the program, or an error. */
static int run_compiler(const char *ptx, char *program, int capacity, char *log, int log_bytes) {
    const char *command = getenv("FAKE_CUDA_COMPILER");
    char source[] = "/tmp/module-XXXXXX", line[512] = "", whole[1200];
    Dl_info found = {0};
    const char *artifact = dladdr(ptx, &found) && found.dli_fname ? found.dli_fname : "";
    const char *known = find_compiled(artifact, ptx);
    if (known) { snprintf(program, (size_t)capacity, "%s", known); return 0; }
    const int file = mkstemp(source);
    FILE *text = file < 0 || command == NULL ? NULL : fdopen(file, "w");
    if (text == NULL) { snprintf(log, (size_t)log_bytes, "no compiler"); return 1; }
    fputs(ptx, text), fclose(text);
    snprintf(whole, sizeof whole, "%s %s %s", command, source, artifact);
    FILE *output = popen(whole, "r");
    if (output == NULL || fgets(line, sizeof line, output) == NULL) line[0] = 0;
    const int failed = output == NULL || pclose(output) != 0;
    unlink(source);
    line[strcspn(line, "\n")] = 0;
    snprintf(failed ? log : program, (size_t)(failed ? log_bytes : capacity), "%s", line);
    if (!failed) {
        struct compiled *made = malloc(sizeof *made);
        snprintf(made->artifact, sizeof made->artifact, "%s", artifact);
        snprintf(made->program, sizeof made->program, "%s", line);
        made->next = all_compiled, all_compiled = made;
    }
    return failed;
}
/* Finds the PTX of a cubin, if the device runs the cubin. Its header is that of an ELF file, whose flags have the
 * architecture: in their second byte since CUDA 13, in their first one before. */
static int read_cubin(const uint8_t *cubin, const char **ptx) {
    const int architecture = cubin[8] >= 8 ? cubin[49] : cubin[48];
    if (architecture / 10 != capability / 10 || architecture > capability) return NO_BINARY;
    for (struct source *each = sources; each; each = each->next)
        if (memcmp(each->cubin, cubin, each->bytes) == 0) {
            *ptx = each->ptx, loaded_cubins++;
            return OK;
        }
    return INVALID_IMAGE;
}
int cuModuleLoadDataEx(module **result, const char *image, unsigned count, int *options, void **values) {
    INSIDE("cuModuleLoadDataEx");
    const char *ptx = image;
    const int is_cubin = memcmp(image, "\x7f" "ELF", 4) == 0, read = is_cubin ? read_cubin((const uint8_t *)image, &ptx) : OK;
    if (read) return read;
    char path[512], unused[8], *log = unused;
    int bytes = sizeof unused;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == 5) log = values[i];
        if (options[i] == 6) bytes = (int)(uintptr_t)values[i];
    }
    if (compile ? compile(ptx, path, sizeof path, log, bytes) : run_compiler(ptx, path, sizeof path, log, bytes))
        return INVALID_PTX;
    const program *made = load_program(path, log, (size_t)bytes);
    if (made == NULL) return INVALID_PTX;
    for (const constant *each = made->constants; each < made->constants + made->constant_count; each++)
        if (find(&device, (uint64_t)(uintptr_t)each->begin) == NULL)
            insert((uint64_t)(uintptr_t)each->begin, each->bytes, NULL, 1);
    *result = malloc(sizeof **result);
    **result = (module){made, NULL}, modules++;
    return OK;
}
int cuPointerGetAttribute(int *value, int attribute, pointer asked) {
    BEGIN("cuPointerGetAttribute");
    if (find(&device, asked) == NULL) return INVALID;
    *value = attribute == 9 ? owner : 2;
    return OK;
}
int cuMemcpyHtoD_v2(pointer target, const void *source, size_t bytes) { return cuMemcpyHtoDAsync_v2(target, source, bytes, NULL); }
int cuModuleUnload(module *m) {
    INSIDE("cuModuleUnload");
    for (const constant *each = m->program->constants; each < m->program->constants + m->program->constant_count; each++)
        for (int i = 0; i < device.count; i++)
            if (slots[i].begin == (uint64_t)(uintptr_t)each->begin) drop(i--);
    for (function *f = m->functions, *next; f; f = next) next = f->next, free(f);
    free(m), modules--;
    return OK;
}
int cuModuleGetFunction(function **result, module *m, const char *name) {
    INSIDE("cuModuleGetFunction");
    const function found = {find_kernel(m->program, name), MOST_STATIC_SHARED, m->functions};
    if (found.kernel == NULL) return NOT_FOUND;
    m->functions = *result = malloc(sizeof found);
    **result = found;
    return OK;
}
/* The rules are those of the driver, as far as maps of matrices in 16 bits are concerned. */
int cuTensorMapEncodeTiled(tile_map *map, int type, uint32_t rank, void *base, const uint64_t *sizes, const uint64_t *steps,
                           const uint32_t *box, const uint32_t *distances, int interleave, int swizzle, int promotion,
                           int fill) {
    INSIDE("cuTensorMapEncodeTiled");
    if ((uintptr_t)map % 64 || (uintptr_t)base % 16 || rank < 1 || rank > 5 || (type != 6 && type != 9)) return INVALID;
    if (interleave || swizzle != 3 || promotion < 0 || promotion > 3 || fill || box[0] * 2 > 128) return INVALID;
    tile_map made = {.magic = MAP_MAGIC, .base = (uint64_t)(uintptr_t)base, .rank = rank, .bytes = 2};
    for (uint32_t i = 0; i < rank; i++) {
        if (sizes[i] == 0 || sizes[i] > 1ull << 32 || box[i] == 0 || box[i] > 256 || distances[i] != 1) return INVALID;
        if (i > 0 && (steps[i - 1] % 16 || steps[i - 1] >= 1ull << 40)) return INVALID;
        made.sizes[i] = sizes[i], made.box[i] = box[i];
        if (i > 0) made.steps[i - 1] = steps[i - 1];
    }
    memset(map, 0, 128);
    memcpy(map, &made, sizeof made);
    return OK;
}
int cuFuncSetAttribute(function *f, int attribute, int value) {
    INSIDE("cuFuncSetAttribute");
    if (attribute != 8 || value < 0 || value > MOST_SHARED) return INVALID;
    f->most_shared = (unsigned)value;
    return OK;
}
int cuStreamCreate(stream **result, unsigned flags) {
    INSIDE("cuStreamCreate");
    if (flags > 1) return INVALID;
    stream *made = malloc(sizeof *made);
    *made = (stream){NULL, known_streams};
    *result = known_streams = made, streams++;
    return OK;
}
int cuStreamDestroy_v2(stream *s) {
    INSIDE("cuStreamDestroy");
    for (stream **each = &known_streams; *each; each = &(*each)->next)
        if (*each == s) {
            *each = s->next;
            if (s->captured) free_graph(s->captured);
            free(s), streams--;
            return OK;
        }
    return INVALID;
}
int cuStreamSynchronize(void *stream) {
    INSIDE("cuStreamSynchronize");
    if (recorded_by(stream)) return NOT_WHILE_CAPTURED;
    return device.error[0] ? ILLEGAL_ADDRESS : OK;
}
int cuLaunchKernel(function *f, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                   unsigned threads_z, unsigned shared_bytes, void *stream, void **arguments, void **extra) {
    (void)extra;
    INSIDE("cuLaunchKernel");
    if (x == 0 || y != 1 || z != 1 || threads == 0 || threads_y != 1 || threads_z != 1 || threads > MOST_THREADS ||
        shared_bytes > f->most_shared)
        return INVALID;
    operation made = {.f = f, .blocks = x, .threads = threads, .shared = shared_bytes};
    size_t end = 0;
    for (int i = 0; f->kernel->parameters[i]; i++) {
        const size_t bytes = (size_t)f->kernel->parameters[i];
        end = (end + bytes - 1) / bytes * bytes;
        if (end + bytes > sizeof made.parameters) return INVALID;
        memcpy(made.parameters + end, arguments[i], bytes);
        end += bytes;
    }
    return queue(&made, stream);
}
typedef struct event { double milliseconds; } event;
int cuEventCreate(event **result, unsigned flags) {
    (void)flags;
    INSIDE("cuEventCreate");
    *result = calloc(1, sizeof **result), events++;
    return OK;
}
int cuEventDestroy_v2(event *e) { INSIDE("cuEventDestroy"); free(e), events--; return OK; }
int cuEventRecord(event *e, void *stream) {
    (void)stream;
    INSIDE("cuEventRecord");
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    e->milliseconds = 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
    return OK;
}
int cuEventSynchronize(event *e) { (void)e; INSIDE("cuEventSynchronize"); return OK; }
int cuEventElapsedTime(float *milliseconds, event *begin, event *end) {
    INSIDE("cuEventElapsedTime");
    if (begin->milliseconds == 0 || end->milliseconds == 0) return INVALID;
    *milliseconds = (float)(end->milliseconds - begin->milliseconds);
    return OK;
}
int cuGetErrorString(int result, const char **text) {
    *text = result == NO_MEMORY ? "out of memory" : result == NO_DEVICE ? "no CUDA-capable device is detected"
          : result == INVALID_IMAGE ? "device kernel image is invalid"
          : result == NO_BINARY ? "no kernel image is available for execution on the device"
          : result == INVALID_PTX ? "a PTX JIT compilation failed" : result == ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
          : result == INJECTED ? "injected failure" : "invalid argument";
    return OK;
}
int cuDriverGetVersion(int *version) { BEGIN("cuDriverGetVersion"); *version = driver_version; return OK; }
