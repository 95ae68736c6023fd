/* The generated tables of an artifact, which the fixed runtime reads. Not part of the ABI: one compiler writes both. */
#ifndef NACRE_TABLES_H
#define NACRE_TABLES_H

#include "abi.h"

#define NACRE_OVERFLOW INT64_MIN /* a size that exceeds 64 bits; every operation propagates it */

/* The operations of formulas. A formula is a sequence of pairs in prefix order: an operation, and its number. The number
is the value of a constant, the index of a dim, or how many operands follow, which are formulas and are combined from
left to right. `2*T + 1` is SUM 2, PRODUCT 2, DIM 0, CONSTANT 2, CONSTANT 1. */
enum { NACRE_CONSTANT, NACRE_DIM, NACRE_SUM, NACRE_PRODUCT, NACRE_FLOOR_DIV, NACRE_MIN, NACRE_MAX };

typedef struct nacre_size {
    int64_t constant;
    const int64_t *formula; /* NULL: the size is `constant` */
    const char *text;       /* the expression in the model; NULL for a constant */
} nacre_size;

typedef struct nacre_argument {
    const char *name;
    const char *type;
    const nacre_size *shape;
    nacre_dtype dtype;
    int32_t rank;
} nacre_argument;

typedef struct nacre_dim {
    const char *name;
    int64_t low, high, multiple; /* bounds and divisor; `high` is INT64_MAX without an upper bound */
} nacre_dim;

/* Computes one dim from the size of one axis and the dims bound before it, as `nacre_solve` does. If `argument` is -1,
the dim is the session's dim with the number `axis`. */
typedef struct nacre_binding {
    int32_t dim, argument, axis;
    nacre_size rest, divisor;
    int64_t factor;
} nacre_binding;

enum { NACRE_EQUAL, NACRE_AT_LEAST, NACRE_MULTIPLE_OF, NACRE_FITS };

typedef struct nacre_constraint {
    nacre_size left, right;
    const char *text;
    int32_t relation;
} nacre_constraint;

typedef void (*nacre_task)(const void *context, int64_t begin, int64_t end);

/* The threads of one call. An entry passes every kernel of several work items to `parallel`, which computes each of the
items 0 to `items` - 1 once, on any threads. `pace` is a variable of the kernel that holds the measured time of a work
item, 0 before its first run. Generated code reads this field only. */
typedef struct nacre_team {
    void (*parallel)(struct nacre_team *team, nacre_task task, const void *context, int64_t items, int64_t *pace);
} nacre_team;

/* An index out of range, as `check_indices` in the generated code reports it. */
typedef struct nacre_failure {
    int64_t number; /* the position of the index in the tensor of indices, in row-major order */
    int64_t index, size; /* the value of the index, and the size of the axis that it addresses */
    int64_t window; /* the number of consecutive elements that the index addresses */
    int64_t alarm; /* used by the entry itself: not 0 if a kernel has met an index out of range */
    char *passed; /* from the caller: a byte for each check, which the entry sets if it need not repeat it */
} nacre_failure;

/* The code of an entry. Without a team (NULL), it computes everything in the calling thread. It returns 0, or the
number of the failed check of indices, from 1; it has then written `failure`, and its results are unspecified. */
typedef int64_t (*nacre_kernel)(const void *const *inputs, void *const *outputs, char *workspace, const char *weights,
                                const int64_t *dims, nacre_team *team, nacre_failure *failure);

/* The hooks of an observed entry: it calls `begin` before each part of a kernel, and `end` after the last
part, with the number of the call. Generated code reads these fields only. */
typedef struct nacre_watch {
    void (*begin)(struct nacre_watch *watch);
    void (*end)(struct nacre_watch *watch, int64_t call);
} nacre_watch;

/* The second copy of an entry, for observed calls. */
typedef int64_t (*nacre_observed_kernel)(const void *const *inputs, void *const *outputs, char *workspace,
                                         const char *weights, const int64_t *dims, nacre_team *team,
                                         nacre_failure *failure, nacre_watch *watch);

/* A CPU variant of the code: its name, and the CPU features that it requires, as bits of cpu.h. */
typedef struct nacre_level {
    const char *name;
    uint64_t features;
} nacre_level;

/* A tensor that a session keeps between calls. Its sizes are formulas of the session's dims. */
typedef struct nacre_state {
    nacre_argument tensor;
    int64_t initial, initial_bytes; /* offset of its initial value in the weights; 0 bytes: zeros */
} nacre_state;

/* An entry. Its states follow the arguments in `inputs` of its code, and the results in `outputs`. */
typedef struct nacre_entry {
    const char *name;
    const nacre_kernel *kernels; /* one for each level */
    const nacre_observed_kernel *observed_kernels; /* one for each level; NULL: the entry cannot be observed */
    const nacre_argument *arguments;
    const nacre_argument *results;
    const nacre_dim *dims;
    const nacre_binding *bindings; /* one for each dim */
    const nacre_constraint *constraints;
    const char *const *checks; /* for each check of indices, the checked operator and its source location */
    nacre_size workspace;
    int32_t argument_count, result_count, dim_count, constraint_count;
    const int32_t *states; /* indices of the artifact's states that the entry uses */
    int32_t state_count;
    int32_t first_check; /* the number of checks of all earlier entries */
} nacre_entry;

typedef struct nacre_artifact {
    const char *description;
    const char *calls; /* the JSON text that `describe_calls` returns */
    const nacre_level *levels; /* the most demanding one first */
    const nacre_entry *entries;
    int32_t level_count, entry_count;
    const char *weights;       /* NULL: in an external file, or weight_bytes is 0 */
    int64_t weight_bytes;
    int64_t header_bytes;      /* header of the external file, with its length field */
    uint64_t header_hash;      /* FNV-1a hash of the header */
    int64_t file_bytes;        /* data of the external file: weights of CPU code, then of device code; else 0 */
    const nacre_state *states;
    const nacre_dim *session_dims;
    int32_t state_count, session_dim_count;
    int32_t check_count; /* the number of checks of all entries */
    int32_t known_count;
    const nacre_level *known_levels; /* all CPU variants of the compiler, whose names NACRE_CPU_LEVEL may be */
} nacre_artifact;

extern const nacre_artifact nacre_this_artifact;

/* Returns the result of both exported functions. These do not call each other, because the dynamic linker may bind
   `nacre_get_api` to another artifact of the process. */
const nacre_api *nacre_offered_api(uint32_t version);

/* Returns the value of a formula. */
int64_t nacre_evaluate(const int64_t *formula, const int64_t *dims);

/* Arithmetic of sizes: floor division, and an overflow propagates instead of wrapping. */
static inline int64_t nacre_add(int64_t a, int64_t b) {
    int64_t r;
    return a == NACRE_OVERFLOW || b == NACRE_OVERFLOW || __builtin_add_overflow(a, b, &r) ? NACRE_OVERFLOW : r;
}

static inline int64_t nacre_mul(int64_t a, int64_t b) {
    int64_t r;
    return a == NACRE_OVERFLOW || b == NACRE_OVERFLOW || __builtin_mul_overflow(a, b, &r) ? NACRE_OVERFLOW : r;
}

static inline int64_t nacre_floor_div(int64_t a, int64_t b) {
    if (a == NACRE_OVERFLOW || b <= 0) return NACRE_OVERFLOW;
    return a / b - (a % b < 0);
}

static inline int64_t nacre_min(int64_t a, int64_t b) {
    return a < b ? a : b; /* NACRE_OVERFLOW is the least number, so it propagates */
}

static inline int64_t nacre_max(int64_t a, int64_t b) {
    if (a == NACRE_OVERFLOW || b == NACRE_OVERFLOW) return NACRE_OVERFLOW;
    return a > b ? a : b;
}

/* dim == (size - rest) / divisor * factor; NACRE_OVERFLOW if no dim gives the size. */
static inline int64_t nacre_solve(int64_t size, int64_t rest, int64_t divisor, int64_t factor) {
    if (rest == NACRE_OVERFLOW || divisor <= 0 || size < rest) return NACRE_OVERFLOW;
    int64_t difference;
    if (__builtin_sub_overflow(size, rest, &difference) || difference % divisor != 0) return NACRE_OVERFLOW;
    return nacre_mul(difference / divisor, factor);
}

static inline int64_t nacre_value(const nacre_size *size, const int64_t *dims) {
    return size->formula ? nacre_evaluate(size->formula, dims) : size->constant;
}

#endif
