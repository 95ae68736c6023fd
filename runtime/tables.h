/* The generated tables of an artifact, which the fixed runtime reads. Not part of the ABI: one compiler writes both. */
#ifndef NACRE_TABLES_H
#define NACRE_TABLES_H

#include "abi.h"

#define NACRE_OVERFLOW INT64_MIN /* a size that 64 bits cannot hold; every operation passes it on */

typedef int64_t (*nacre_formula)(const int64_t *dims);

typedef struct nacre_size {
    int64_t constant;
    nacre_formula formula; /* NULL: the constant */
    const char *text;      /* as the model writes it; NULL for a constant */
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
    int64_t low, high, multiple; /* high INT64_MAX: none */
} nacre_dim;

/* Computes one dim from the size of one axis, given the dims bound before it; `solve` returns NACRE_OVERFLOW if no value
fits. If `argument` is -1, the dim is the session's dim with the number `axis`. */
typedef struct nacre_binding {
    int32_t dim, argument, axis;
    int64_t (*solve)(const int64_t *dims, int64_t size);
} nacre_binding;

enum { NACRE_EQUAL, NACRE_AT_LEAST, NACRE_MULTIPLE_OF, NACRE_FITS };

typedef struct nacre_constraint {
    nacre_size left, right;
    const char *text;
    int32_t relation;
} nacre_constraint;

typedef void (*nacre_task)(const void *context, int64_t begin, int64_t end);

/* The threads of one call. An entry hands every kernel of more than one unit to `parallel`, which computes the units
[0, units), each once, on whatever threads; `pace` is memory of the kernel's own for how long a unit takes, 0 before its
first run. Generated code knows this field alone. */
typedef struct nacre_team {
    void (*parallel)(struct nacre_team *team, nacre_task task, const void *context, int64_t units, int64_t *pace);
} nacre_team;

/* An index that is out of range, as `check_indices` of the generated code finds it. */
typedef struct nacre_failure {
    int64_t number; /* of the index among the indices, in row-major order */
    int64_t index, size; /* what it is, and the size of the axis that it addresses */
    int64_t window; /* how many elements from there on are addressed */
    int64_t alarm; /* of the entry's own: whether a kernel has met an index out of range */
    char *passed; /* given: a byte for each check of the entry; the entry sets those of checks that it need not repeat */
} nacre_failure;

/* Without a team (NULL) an entry computes everything in the thread that calls it. It returns 0, or the number of the
check of indices that failed, counted from 1; then it has written `failure`, and its results are unspecified. */
typedef int64_t (*nacre_kernel)(const void *const *inputs, void *const *outputs, char *workspace, const char *weights,
                                const int64_t *dims, nacre_team *team, nacre_failure *failure);

/* The hooks of an observed entry: it calls `begin` before each part of a kernel, and `end` after the last
part, with the number of the call. Generated code knows these fields alone. */
typedef struct nacre_watch {
    void (*begin)(struct nacre_watch *watch);
    void (*end)(struct nacre_watch *watch, int64_t call);
} nacre_watch;

/* The same entry once more, for calls that are observed. */
typedef int64_t (*nacre_observed_kernel)(const void *const *inputs, void *const *outputs, char *workspace,
                                         const char *weights, const int64_t *dims, nacre_team *team,
                                         nacre_failure *failure, nacre_watch *watch);

/* Code for one kind of CPU: its name, and what the CPU must be able to do, as in cpu.h. */
typedef struct nacre_level {
    const char *name;
    uint64_t features;
} nacre_level;

/* A tensor that a session keeps between calls. Its sizes are formulas of the session's dims. */
typedef struct nacre_state {
    nacre_argument tensor;
    int64_t initial, initial_bytes; /* where its initial value is in the weights; 0 bytes: zeros */
} nacre_state;

/* States follow the arguments among the inputs of the kernels, and the results among the outputs. */
typedef struct nacre_entry {
    const char *name;
    const nacre_kernel *kernels; /* one for each level */
    const nacre_observed_kernel *observed_kernels; /* likewise; NULL: it cannot be observed */
    const nacre_argument *arguments;
    const nacre_argument *results;
    const nacre_dim *dims;
    const nacre_binding *bindings; /* one for each dim */
    const nacre_constraint *constraints;
    const char *const *checks; /* of indices: which operator each checks for, and where that is written */
    nacre_size workspace;
    int32_t argument_count, result_count, dim_count, constraint_count;
    const int32_t *states; /* of the artifact, which the entry uses */
    int32_t state_count;
    int32_t first_check; /* the checks of the entries before */
} nacre_entry;

typedef struct nacre_artifact {
    const char *description;
    const char *calls; /* the description of calls */
    const nacre_level *levels; /* the most demanding first */
    const nacre_entry *entries;
    int32_t level_count, entry_count;
    const char *weights;       /* NULL: external, if weight_bytes is not 0 */
    int64_t weight_bytes;
    int64_t header_bytes;      /* of the external file, the length field included */
    uint64_t header_hash;      /* FNV-1a of those bytes */
    int64_t file_bytes;        /* of the external file behind its header: the weights, then those of a device; else 0 */
    const nacre_state *states;
    const nacre_dim *session_dims;
    int32_t state_count, session_dim_count;
    int32_t check_count; /* of all entries */
} nacre_artifact;

extern const nacre_artifact nacre_this_artifact;

/* Returns the result of both exported functions. They must not call each other: an exported function of this name may be that of
   another artifact of the process. */
const nacre_api *nacre_offered_api(uint32_t version);

/* Arithmetic of sizes: floor division, and overflow that is passed on instead of wrapping. */
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
    return a < b ? a : b; /* NACRE_OVERFLOW is the least */
}

static inline int64_t nacre_max(int64_t a, int64_t b) {
    if (a == NACRE_OVERFLOW || b == NACRE_OVERFLOW) return NACRE_OVERFLOW;
    return a > b ? a : b;
}

/* dim == (size - rest) / divisor * factor */
static inline int64_t nacre_solve(int64_t size, int64_t rest, int64_t divisor, int64_t factor) {
    if (rest == NACRE_OVERFLOW || divisor <= 0 || size < rest) return NACRE_OVERFLOW;
    int64_t difference;
    if (__builtin_sub_overflow(size, rest, &difference) || difference % divisor != 0) return NACRE_OVERFLOW;
    return nacre_mul(difference / divisor, factor);
}

static inline int64_t nacre_value(const nacre_size *size, const int64_t *dims) {
    return size->formula ? size->formula(dims) : size->constant;
}

#endif
