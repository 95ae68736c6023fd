/* Entries as code generation exports them, written by hand: the artifact around them is what is tested. */
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "tables.h"

#define ENTRY(name)                                                                                               \
    static void name##_body(const void *const *in, void *const *out, char *workspace, const char *weights,        \
                            const int64_t *d, nacre_team *team);                                                  \
    __attribute__((visibility("hidden"))) int64_t nacre_entry_##name(                                             \
        const void *const *in, void *const *out, char *workspace, const char *weights, const int64_t *d,          \
        nacre_team *team, nacre_failure *failure);                                                                \
    int64_t nacre_entry_##name(const void *const *in, void *const *out, char *workspace, const char *weights,     \
                               const int64_t *d, nacre_team *team, nacre_failure *failure) {                      \
        (void)failure;                                                                                            \
        name##_body(in, out, workspace, weights, d, team);                                                        \
        return 0;                                                                                                 \
    }                                                                                                             \
    static void name##_body(const void *const *in, void *const *out, char *workspace, const char *weights,        \
                            const int64_t *d, nacre_team *team)
#define UNUSED (void)in, (void)out, (void)workspace, (void)weights, (void)d, (void)team

ENTRY(add) { /* d: B, T; through the workspace, so that a wrong one shows */
    UNUSED;
    const float *y = in[1];
    float *sum = out[0], *copy = (float *)workspace;
    memcpy(copy, in[0], (size_t)(d[0] * d[1]) * sizeof *copy);
    for (int64_t i = 0; i < d[0] * d[1]; i++) sum[i] = copy[i] + y[i];
}

ENTRY(embed) { /* d: B, T; the table is the second weight, at 64 */
    UNUSED;
    const int64_t *ids = in[0];
    for (int64_t i = 0; i < d[0] * d[1]; i++) memcpy((float *)out[0] + 3 * i, weights + 64 + 12 * ids[i], 12);
}

ENTRY(split) { /* d: T; 2*T + 1 values into T and T + 1 */
    UNUSED;
    memcpy(out[0], in[0], (size_t)d[0] * 4);
    memcpy(out[1], (const float *)in[0] + d[0], (size_t)(d[0] + 1) * 4);
}

ENTRY(flat) { /* d: B, T */
    UNUSED;
    memcpy(out[0], in[0], (size_t)(d[0] * d[1]) * 4);
}

ENTRY(groups) { /* d: G */
    UNUSED;
    for (int64_t i = 0; i < d[0]; i++) ((uint8_t *)out[0])[i] = (uint8_t)(((const uint8_t *)in[0])[i] + i / 8);
}

ENTRY(pair) { UNUSED; *(int64_t *)out[0] = d[0] * 1000 + d[1]; }

ENTRY(scalar) {
    UNUSED;
    *(float *)out[0] = powf(*(const float *)in[0], (float)*(const int64_t *)in[1]) * (*(const uint8_t *)in[2] ? 1 : -1);
}

ENTRY(constant) { UNUSED; memcpy(out[0], weights, 4); }

ENTRY(half) { UNUSED; memcpy(out[0], in[0], (size_t)d[0] * 2); }
ENTRY(finite) { UNUSED; memcpy(out[0], in[0], (size_t)d[0]); }
ENTRY(upper) { UNUSED; memcpy(out[0], in[0], (size_t)d[0]); }

ENTRY(cube) { UNUSED; memset(out[0], 1, (size_t)(d[0] * d[0] * d[0])); }

/* A kernel of many units, and what code generation writes beside one: see tables.h. */
typedef struct {
    const float *x;
    float *y;
} rows;

static void compute_rows(const void *context, int64_t begin, int64_t end) {
    const rows *all = context;
    for (int64_t i = begin * 64; i < end * 64; i++) {
        float value = all->x[i];
        for (int step = 0; step < 100; step++) value = value * 0.99f + 0.01f / (1 + value * value);
        all->y[i] = value;
    }
}

ENTRY(rows) { /* d: S; a row is a unit */
    UNUSED;
    static int64_t pace;
    rows all = {in[0], out[0]};
    if (team && d[0] > 1)
        team->parallel(team, compute_rows, &all, d[0], &pace);
    else
        compute_rows(&all, 0, d[0]);
}

ENTRY(wait) { /* writes -1 once it runs, and ends when the caller writes another number than 0 over the argument */
    UNUSED;
    const volatile float *go = in[0];
    volatile float *result = out[0];
    workspace[0] = 1;
    *result = -1;
    for (int i = 0; i < 60000 && *go == 0; i++) usleep(1000);
    *result = *go;
}
