/* Checks the arguments of a caller against the tables, and binds dims. Every error states the expected and the actual
 * value. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

static const struct {
    const char *name;
    int64_t bytes;
} dtypes[] = {
    {"unknown", 0}, {"bool", 1}, {"i8", 1},  {"u8", 1},   {"i16", 2}, {"u16", 2}, {"i32", 4},
    {"u32", 4},              {"i64", 8},  {"u64", 8}, {"f16", 2}, {"bf16", 2}, {"f32", 4}, {"f64", 8},
    {"f8e4m3", 1},           {"f8e5m2", 1},
};

static const int32_t dtype_count = sizeof dtypes / sizeof dtypes[0];

static int32_t known(nacre_dtype dtype) { return dtype > 0 && dtype < dtype_count ? dtype : 0; }

int64_t nacre_dtype_bytes(nacre_dtype dtype) { return dtypes[known(dtype)].bytes; }

/* A text buffer that truncates longer text. */
typedef struct {
    char text[320];
    size_t length;
} words;

__attribute__((format(printf, 2, 3))) static void put(words *to, const char *format, ...) {
    va_list values;
    va_start(values, format);
    int written = vsnprintf(to->text + to->length, sizeof to->text - to->length, format, values);
    va_end(values);
    if (written > 0) to->length += (size_t)written;
    if (to->length >= sizeof to->text) to->length = sizeof to->text - 1;
}

static words describe_tensor(const nacre_tensor *tensor) {
    words text = {.length = 0};
    put(&text, "%s", dtypes[known(tensor->dtype)].name);
    if (tensor->rank == 0) return text;
    for (int32_t axis = 0; axis < tensor->rank; axis++)
        put(&text, "%s%" PRId64, axis ? ", " : "[", tensor->shape[axis]);
    put(&text, "]");
    return text;
}

/* Returns the value of a size, after its expression if it has one: `2*T + 1` = 11. */
static words describe_size(const nacre_size *size, const int64_t *dims) {
    words text = {.length = 0};
    if (size->text) put(&text, "`%s` = ", size->text);
    put(&text, "%" PRId64, nacre_value(size, dims));
    return text;
}

static nacre_status mismatch(const nacre_argument *expected, const char *role, const nacre_tensor *got,
                             const char *reason) {
    return nacre_fail(NACRE_INVALID, "%s `%s`: expected %s, got %s%s", role, expected->name, expected->type,
                      describe_tensor(got).text, reason);
}

const nacre_entry *nacre_find_entry(int64_t index) {
    if (index >= 0 && index < nacre_this_artifact.entry_count) return &nacre_this_artifact.entries[index];
    nacre_fail(NACRE_INVALID, "entry %" PRId64 " does not exist; the artifact has %" PRId32, index,
               nacre_this_artifact.entry_count);
    return NULL;
}

int64_t nacre_tensor_bytes(const nacre_tensor *tensor) {
    int64_t bytes = dtypes[known(tensor->dtype)].bytes;
    for (int32_t axis = 0; axis < tensor->rank; axis++)
        if (tensor->shape[axis] == 0) return 0;
    for (int32_t axis = 0; axis < tensor->rank; axis++) bytes = nacre_mul(bytes, tensor->shape[axis]);
    return bytes;
}

nacre_status nacre_check_range(const nacre_dim *dim, int64_t value, const char *where) {
    if (value < dim->low || value > dim->high) {
        if (dim->high == INT64_MAX)
            return nacre_fail(NACRE_INVALID, "dim `%s` is %" PRId64 ", less than %" PRId64 "%s", dim->name, value,
                              dim->low, where);
        return nacre_fail(NACRE_INVALID, "dim `%s` is %" PRId64 ", outside %" PRId64 "..%" PRId64 "%s", dim->name,
                          value, dim->low, dim->high, where);
    }
    if (value % dim->multiple != 0)
        return nacre_fail(NACRE_INVALID, "dim `%s` is %" PRId64 ", not a multiple of %" PRId64 "%s", dim->name, value,
                          dim->multiple, where);
    return NACRE_OK;
}

static int holds(const nacre_constraint *constraint, int64_t left, int64_t right) {
    if (left == NACRE_OVERFLOW || right == NACRE_OVERFLOW) return 0;
    switch (constraint->relation) {
        case NACRE_EQUAL: return left == right;
        case NACRE_AT_LEAST: return left >= right;
        case NACRE_FITS: return 1;
        default: return right == 0 ? left == 0 : right != -1 && left % right == 0;
    }
}

static nacre_status check_constraints(const nacre_entry *entry, const int64_t *dims) {
    for (int32_t i = 0; i < entry->constraint_count; i++) {
        const nacre_constraint *constraint = &entry->constraints[i];
        if (holds(constraint, nacre_value(&constraint->left, dims), nacre_value(&constraint->right, dims))) continue;
        words values = {.length = 0};
        for (int32_t d = 0; d < entry->dim_count; d++)
            put(&values, "%s`%s` = %" PRId64, d ? ", " : "", entry->dims[d].name, dims[d]);
        return nacre_fail(NACRE_INVALID, "entry `%s` needs %s, which does not hold for %s", entry->name,
                          constraint->text, values.text);
    }
    return NACRE_OK;
}

/* Fails if the bytes of an argument, a result or the workspace exceed 64 bits, or if a size is negative. */
static nacre_status check_extents(const nacre_entry *entry, const int64_t *dims) {
    const nacre_argument *groups[] = {entry->arguments, entry->results};
    const int32_t counts[] = {entry->argument_count, entry->result_count};
    for (int group = 0; group < 2; group++)
        for (int32_t i = 0; i < counts[group]; i++) {
            const nacre_argument *argument = &groups[group][i];
            int64_t bytes = dtypes[argument->dtype].bytes;
            int empty = 0;
            for (int32_t axis = 0; axis < argument->rank; axis++) {
                int64_t size = nacre_value(&argument->shape[axis], dims);
                if (size < 0)
                    return nacre_fail(NACRE_INVALID, "%s `%s`: axis %" PRId32 " of %s is %s",
                                      group ? "result" : "argument", argument->name, axis, argument->type,
                                      size == NACRE_OVERFLOW ? "too large" : "negative");
                empty |= size == 0;
                bytes = nacre_mul(bytes, size);
            }
            if (bytes == NACRE_OVERFLOW && !empty)
                return nacre_fail(NACRE_INVALID, "%s `%s`: %s is too large", group ? "result" : "argument",
                                  argument->name, argument->type);
        }
    if (nacre_value(&entry->workspace, dims) < 0)
        return nacre_fail(NACRE_INVALID, "entry `%s`: the workspace is too large", entry->name);
    return NACRE_OK;
}

nacre_status nacre_check_dims(const nacre_entry *entry, const int64_t *dims) {
    if (dims == NULL && entry->dim_count)
        return nacre_fail(NACRE_INVALID, "entry `%s`: no dims were given", entry->name);
    for (int32_t d = 0; d < entry->dim_count; d++) {
        nacre_status status = nacre_check_range(&entry->dims[d], dims[d], "");
        if (status) return status;
    }
    nacre_status status = check_constraints(entry, dims);
    return status ? status : check_extents(entry, dims);
}

nacre_status nacre_check_tensor(const nacre_argument *expected, const char *role, const nacre_tensor *got) {
    if (got->rank < 0 || (got->rank > 0 && got->shape == NULL))
        return nacre_fail(NACRE_INVALID, "%s `%s`: expected %s, got a tensor without a shape", role, expected->name,
                          expected->type);
    if (got->rank != expected->rank) {
        words reason = {.length = 0};
        put(&reason, " (rank %" PRId32 ", expected %" PRId32 ")", got->rank, expected->rank);
        return mismatch(expected, role, got, reason.text);
    }
    for (int32_t axis = 0; axis < got->rank; axis++)
        if (got->shape[axis] < 0) return mismatch(expected, role, got, " (a size is negative)");
    if (got->dtype != expected->dtype) {
        words reason = {.length = 0};
        put(&reason, " (dtype %s, expected %s)", dtypes[known(got->dtype)].name, dtypes[expected->dtype].name);
        return mismatch(expected, role, got, reason.text);
    }
    if (got->strides && nacre_tensor_bytes(got) != 0) {
        int64_t dense = 1;
        for (int32_t axis = got->rank - 1; axis >= 0; axis--) {
            if (got->shape[axis] != 1 && got->strides[axis] != dense) {
                words reason = {.length = 0};
                for (int32_t i = 0; i < got->rank; i++)
                    put(&reason, "%s%" PRId64, i ? ", " : " with strides ", got->strides[i]);
                put(&reason, " (it must be dense and row-major)");
                return mismatch(expected, role, got, reason.text);
            }
            dense = nacre_mul(dense, got->shape[axis]);
        }
    }
    return NACRE_OK;
}

nacre_status nacre_check_data(const nacre_argument *expected, const char *role, const nacre_tensor *got) {
    int64_t bytes = nacre_tensor_bytes(got);
    if (bytes == NACRE_OVERFLOW) return mismatch(expected, role, got, " (too large)");
    if (bytes != 0 && got->data == NULL) return mismatch(expected, role, got, " without data");
    if (bytes != 0 && (uintptr_t)got->data % (uintptr_t)dtypes[expected->dtype].bytes != 0) {
        words reason = {.length = 0};
        put(&reason, " whose data is not aligned to %" PRId64 " bytes", dtypes[expected->dtype].bytes);
        return mismatch(expected, role, got, reason.text);
    }
    return NACRE_OK;
}

nacre_status nacre_check_shape(const nacre_entry *entry, const nacre_argument *expected, const char *role,
                               const nacre_tensor *got, const int64_t *dims) {
    for (int32_t axis = 0; axis < expected->rank; axis++) {
        const nacre_size *size = &expected->shape[axis];
        if (got->shape[axis] == nacre_value(size, dims)) continue;
        words reason = {.length = 0};
        put(&reason, " (axis %" PRId32 " is %" PRId64 ", expected %s", axis, got->shape[axis],
            describe_size(size, dims).text);
        /* If the size is a single dim, the message names the argument that gave the dim. */
        for (int32_t i = 0; i < entry->dim_count; i++) {
            const nacre_binding *binding = &entry->bindings[i];
            if (binding->argument < 0) {
                if (size->text && strcmp(size->text, entry->dims[i].name) == 0) put(&reason, " from the session");
                continue;
            }
            const nacre_argument *source = &entry->arguments[binding->argument];
            const char *text = source->shape[binding->axis].text;
            if (source != expected && text && size->text && strcmp(size->text, text) == 0)
                put(&reason, " from argument `%s`", source->name);
        }
        put(&reason, ")");
        return mismatch(expected, role, got, reason.text);
    }
    return NACRE_OK;
}

static nacre_status bind_dim(const nacre_session *session, const nacre_entry *entry, const nacre_binding *binding,
                             const nacre_tensor *inputs, int64_t *dims) {
    if (binding->argument < 0) {
        dims[binding->dim] = session->dims[binding->axis];
        return NACRE_OK;
    }
    const nacre_argument *argument = &entry->arguments[binding->argument];
    const nacre_tensor *got = &inputs[binding->argument];
    const nacre_dim *dim = &entry->dims[binding->dim];
    int64_t size = got->shape[binding->axis];
    int64_t value = nacre_solve(size, nacre_value(&binding->rest, dims), nacre_value(&binding->divisor, dims),
                                binding->factor);
    words where = {.length = 0};
    if (value == NACRE_OVERFLOW) {
        put(&where, " (axis %" PRId32 " is %" PRId64 ", and `%s` has this value for no `%s`)", binding->axis, size,
            argument->shape[binding->axis].text, dim->name);
        return mismatch(argument, "argument", got, where.text);
    }
    put(&where, " (argument `%s`: expected %s, got %s)", argument->name, argument->type, describe_tensor(got).text);
    nacre_status status = nacre_check_range(dim, value, where.text);
    dims[binding->dim] = value;
    return status;
}

nacre_status nacre_check_states(const nacre_session *session, const nacre_entry *entry, const int64_t *dims) {
    if (entry->state_count == 0) return NACRE_OK;
    if (session == NULL || session->states == NULL)
        return nacre_fail(NACRE_INVALID, "entry `%s` has states, and the session was created without dims",
                          entry->name);
    for (int32_t i = 0; dims && i < entry->dim_count; i++) {
        const nacre_binding *binding = &entry->bindings[i];
        if (binding->argument >= 0 || dims[binding->dim] == session->dims[binding->axis]) continue;
        return nacre_fail(NACRE_INVALID, "entry `%s`: dim `%s` is %" PRId64 ", the session was created with %" PRId64,
                          entry->name, entry->dims[binding->dim].name, dims[binding->dim],
                          session->dims[binding->axis]);
    }
    return NACRE_OK;
}

nacre_status nacre_bind_inputs(const nacre_session *session, const nacre_entry *entry, const nacre_tensor *inputs,
                               int32_t count, int64_t *dims) {
    nacre_status unfit = nacre_check_states(session, entry, NULL);
    if (unfit) return unfit;
    if (count != entry->argument_count)
        return nacre_fail(NACRE_INVALID, "entry `%s` takes %" PRId32 " argument%s, got %" PRId32, entry->name,
                          entry->argument_count, entry->argument_count == 1 ? "" : "s", count);
    nacre_status status = NACRE_OK;
    for (int32_t i = 0; i < count && !status; i++)
        status = nacre_check_tensor(&entry->arguments[i], "argument", &inputs[i]);
    for (int32_t i = 0; i < entry->dim_count && !status; i++)
        status = bind_dim(session, entry, &entry->bindings[i], inputs, dims);
    for (int32_t i = 0; i < count && !status; i++)
        status = nacre_check_shape(entry, &entry->arguments[i], "argument", &inputs[i], dims);
    if (!status) status = check_constraints(entry, dims);
    return status ? status : check_extents(entry, dims);
}
