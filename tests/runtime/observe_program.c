/* Checks of observed calls, with entries written by hand as code generation writes them. The CPUs are made up, so that
 * several workers run on whatever machine this is.
 *
 *   observe_program CHECK   prints `ok`, or what is wrong
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "affinity.h"
#include "internal.h"
#include "pool.h"

#define UNITS 400
#define SLOW INT64_C(100000000) /* a pace that makes every kernel worth sharing */
#define THREADS 8

void nacre_allowed_cpus(nacre_cpus *allowed) { *allowed = (nacre_cpus){.count = THREADS}; }
int nacre_current_cpu(void) { return -1; }
void nacre_leave_cpu(int cpu) { (void)cpu; }
void nacre_allow_cpus(pthread_t thread, const nacre_cpus *allowed) { (void)thread, (void)allowed; }

static void expect(int holds, const char *what) {
    if (holds) return;
    puts(what);
    fflush(stdout);
    _exit(1);
}

static atomic_int plain_calls, observed_calls;

static void work(const void *context, int64_t begin, int64_t end) {
    float *values = *(float *const *)context;
    for (int64_t unit = begin; unit < end; unit++) {
        float value = (float)unit;
        for (int i = 0; i < 2000; i++) value = value * 0.99f + 0.01f;
        values[unit] = value;
    }
}

static void share(nacre_team *team, float *values) {
    int64_t pace = SLOW;
    if (team)
        team->parallel(team, work, &values, UNITS, &pace);
    else
        work(&values, 0, UNITS);
}

static int64_t plain(const void *const *in, void *const *out, char *workspace, const char *weights,
                     const int64_t *dims, nacre_team *team, nacre_failure *failure) {
    (void)in, (void)weights, (void)dims, (void)failure;
    plain_calls++;
    share(team, (float *)(void *)workspace);
    share(team, out[0]);
    return 0;
}

/* The second kernel has two parts, of which the caller computes the first alone. */
static int64_t observed(const void *const *in, void *const *out, char *workspace, const char *weights,
                        const int64_t *dims, nacre_team *team, nacre_failure *failure, nacre_watch *watch) {
    (void)in, (void)weights, (void)dims, (void)failure;
    observed_calls++;
    watch->begin(watch);
    share(team, (float *)(void *)workspace);
    watch->end(watch, 0);
    watch->begin(watch);
    share(NULL, out[0]);
    watch->begin(watch);
    share(team, out[0]);
    watch->end(watch, 1);
    return 0;
}

static const nacre_kernel kernels[] = {plain};
static const nacre_observed_kernel observed_kernels[] = {observed};
static const nacre_level levels[] = {{"any", 0}};
static const nacre_size shape[] = {{UNITS, 0, 0}};
static const nacre_argument results[] = {{"y", "f32[400]", shape, NACRE_F32, 1}};
static const nacre_entry entries[] = {
    {"main", kernels, observed_kernels, 0, results, 0, 0, 0, 0, {4 * UNITS, 0, 0}, 0, 1, 0, 0, 0, 0, 0},
    {"unobserved", kernels, 0, 0, results, 0, 0, 0, 0, {4 * UNITS, 0, 0}, 0, 1, 0, 0, 0, 0, 0},
};
const nacre_artifact nacre_this_artifact = {"{}", "{}", levels, entries, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};

static const nacre_api *api;

static nacre_session *open_session(uint32_t threads) {
    nacre_session *session = NULL;
    const nacre_options options = {.bytes = sizeof options, .threads = threads};
    expect(api->session_create(&options, &session) == NACRE_OK, "no session");
    return session;
}

static void run(nacre_session *session, int64_t entry) {
    static _Thread_local _Alignas(64) float result[UNITS], workspace[UNITS];
    void *outputs[] = {result};
    nacre_call call = {session, entry, NULL, outputs, NULL, workspace, sizeof workspace};
    result[UNITS - 1] = 0;
    expect(api->call(&call) == NACRE_OK, api->last_error());
    expect(result[UNITS - 1] > 0, "nothing was computed");
}

typedef struct {
    int told[2], ends;
    int64_t last, kernels;
    uint64_t run;
    int most_shares;
} story;

static void tell(void *data, const nacre_event *event) {
    story *s = data;
    expect(event->begin <= event->end && event->entry == 0, "a wrong event");
    if (event->call < 0) {
        s->ends++;
        expect(event->share_count == 0, "a run has no shares");
        expect(event->end - event->begin >= s->kernels && event->end >= s->last, "kernels take longer than their run");
        return;
    }
    s->kernels += event->end - event->begin;
    expect(event->call == 0 || event->run == s->run, "kernels of one run have its number");
    s->run = event->run;
    expect(event->begin >= s->last, "a kernel begins before the end of the one before");
    s->last = event->end;
    s->told[event->call]++;
    const float *written = event->call ? event->outputs[0] : (float *)(void *)event->workspace;
    float all = 0;
    for (int i = 0; i < UNITS; i++) all += written[i] > 0;
    expect(all == UNITS, "a kernel is told before all of it is there");
    expect(event->share_count >= 1, "nobody computed it");
    if (event->share_count > s->most_shares) s->most_shares = (int)event->share_count;
    for (int64_t i = 0; i < event->share_count; i++) {
        const nacre_share *share = &event->shares[i];
        expect(share->begin >= event->begin && share->end <= event->end, "a share beyond its kernel");
        expect(share->busy > 0 && share->busy <= share->end - share->begin, "busy for longer than there");
        for (int64_t j = 0; j < i; j++) expect(event->shares[j].thread != share->thread, "two shares of a thread");
    }
}

static void check_every_kernel_is_told(uint32_t threads) {
    nacre_session *session = open_session(threads);
    story told = {.most_shares = 0};
    const nacre_observer observer = {tell, &told};
    expect(api->observe(session, &observer) == NACRE_OK, "cannot observe");
    for (int i = 0; i < 50; i++) {
        told.kernels = 0;
        run(session, 0);
    }
    expect(told.told[0] == 50 && told.told[1] == 50 && told.ends == 50, "not every kernel was told");
    expect(threads > 1 ? told.most_shares > 1 && told.most_shares <= THREADS : told.most_shares == 1, "wrong shares");
    expect(plain_calls == 0 && observed_calls == 50, "the wrong entry ran");
    api->session_destroy(session);
}

static void alone(void) { check_every_kernel_is_told(1); }
static void shared(void) { check_every_kernel_is_told(THREADS); }

static void off(void) {
    nacre_session *session = open_session(1), *other = open_session(1);
    story told = {.ends = 0};
    const nacre_observer observer = {tell, &told}, nobody = {NULL, NULL};
    run(session, 0);
    expect(api->observe(session, &observer) == NACRE_OK, "cannot observe");
    run(other, 0);
    run(session, 1);
    expect(plain_calls == 3 && observed_calls == 0 && told.ends == 0, "another session, or entry, was observed");
    run(session, 0);
    expect(plain_calls == 3 && observed_calls == 1 && told.ends == 1, "an observed call was not");
    expect(api->observe(session, NULL) == NACRE_OK, "cannot stop");
    run(session, 0);
    expect(plain_calls == 4 && observed_calls == 1 && told.ends == 1, "still observed");
    expect(api->observe(NULL, &observer) == NACRE_INVALID, "no session");
    expect(api->observe(session, &nobody) == NACRE_INVALID, "nothing to tell");
    api->session_destroy(session);
    api->session_destroy(other);
}

enum { CALLERS = 4, CALLS = 25 };

static void *call_often(void *session) {
    for (int i = 0; i < CALLS; i++) run(session, 0);
    return NULL;
}

/* Calls at the same time, into one recording that is too small for all. */
static void recorded(void) {
    nacre_session *session = open_session(THREADS);
    enum { CAPACITY = CALLERS * CALLS * 3 - 7 };
    static nacre_record records[CAPACITY + 1];
    nacre_recording recording = {records, CAPACITY, 0};
    const nacre_observer observer = {api->record, &recording};
    expect(api->observe(session, &observer) == NACRE_OK, "cannot observe");
    pthread_t callers[CALLERS];
    for (int i = 0; i < CALLERS; i++) expect(!pthread_create(&callers[i], NULL, call_often, session), "no thread");
    for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
    expect(recording.count >= CALLERS * CALLS * 3, "too few records");
    expect(records[CAPACITY].end == 0, "a record beyond the others");
    int runs = 0;
    for (int i = 0; i < CAPACITY; i++) {
        const nacre_record *r = &records[i];
        expect(r->run < CALLERS * CALLS && r->end >= r->begin && r->begin > 0, "a wrong record");
        expect((r->call == -1) == (r->share.thread == 0), "a run has no thread, a kernel has");
        runs += r->call == -1;
    }
    expect(runs > 0, "no run was recorded");
    api->session_destroy(session);
}

static const struct {
    const char *name;
    void (*check)(void);
} checks[] = {{"alone", alone}, {"shared", shared}, {"off", off}, {"recorded", recorded}};

int main(int count, char **arguments) {
    api = nacre_get_api(NACRE_ABI_VERSION);
    expect(api->bytes == sizeof *api, "the table says a wrong size");
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (count < 2)
            puts(checks[i].name);
        else if (strcmp(arguments[1], checks[i].name) == 0)
            checks[i].check(), puts("ok");
    }
    return 0;
}
