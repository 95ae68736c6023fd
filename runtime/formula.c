/* Evaluates the formulas of sizes that `tables.h` describes. */
#include "tables.h"

static int64_t combine(int64_t operation, int64_t left, int64_t right) {
    switch (operation) {
        case NACRE_SUM: return nacre_add(left, right);
        case NACRE_PRODUCT: return nacre_mul(left, right);
        case NACRE_FLOOR_DIV: return nacre_floor_div(left, right);
        case NACRE_MIN: return nacre_min(left, right);
        default: return nacre_max(left, right);
    }
}

/* Evaluates the formula at `*at`, and moves `*at` behind it. */
static int64_t evaluate(const int64_t **at, const int64_t *dims) {
    const int64_t operation = *(*at)++, number = *(*at)++;
    if (operation == NACRE_CONSTANT) return number;
    if (operation == NACRE_DIM) return dims[number];
    int64_t value = evaluate(at, dims);
    for (int64_t i = 1; i < number; i++) value = combine(operation, value, evaluate(at, dims));
    return value;
}

int64_t nacre_evaluate(const int64_t *formula, const int64_t *dims) {
    return evaluate(&formula, dims);
}
