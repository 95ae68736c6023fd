/* Observed calls: the observer receives the times and the threads of each kernel, and may read its results.
 *
 * An observed call runs the observed copy of its entry, which reports the start and the end of each kernel. Other calls
 * run no code of this file. A wrapper around the tasks of a kernel records the computing time of each thread.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <time.h>

#include "internal.h"
#include "pool.h"

int64_t nacre_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

uint64_t nacre_next_run(void) {
    static _Atomic uint64_t runs;
    return atomic_fetch_add(&runs, 1);
}

static uint64_t this_thread(void) { return (uint64_t)(uintptr_t)(void *)pthread_self(); }

/* The state of an observed call, on the stack of its caller. */
typedef struct {
    nacre_watch base;
    nacre_team team; /* the team that the entry receives instead of `crew` */
    nacre_team *crew;
    const nacre_observer *observer;
    nacre_event event;
    int64_t part;                    /* start of the running part of a kernel, in nanoseconds; 0: no kernel runs */
    int was_shared;                  /* whether that part was distributed over threads */
    _Atomic int32_t count;           /* the number of shares taken; may exceed NACRE_MOST_THREADS */
    _Atomic uint64_t threads[NACRE_MOST_THREADS]; /* by share, its thread; 0: the thread is about to write it */
    nacre_share shares[NACRE_MOST_THREADS];       /* each written only by its own thread while the kernel runs */
} watching;

/* A task of generated code, for the wrapper `compute_timed`. */
typedef struct {
    watching *watching;
    nacre_task task;
    const void *context;
} timed_task;

static int32_t share_count(watching *w) {
    const int32_t count = atomic_load(&w->count);
    return count < NACRE_MOST_THREADS ? count : NACRE_MOST_THREADS;
}

/* Returns the share of a thread; NULL if more than NACRE_MOST_THREADS different threads have helped. */
static nacre_share *find_share(watching *w, uint64_t thread, int64_t begin) {
    for (int32_t i = share_count(w) - 1; i >= 0; i--)
        if (atomic_load_explicit(&w->threads[i], memory_order_relaxed) == thread) return &w->shares[i];
    const int32_t own = atomic_fetch_add(&w->count, 1);
    if (own >= NACRE_MOST_THREADS) return NULL;
    atomic_store_explicit(&w->threads[own], thread, memory_order_relaxed);
    w->shares[own] = (nacre_share){.thread = thread, .begin = begin};
    return &w->shares[own];
}

static void add_share(watching *w, int64_t begin, int64_t end) {
    nacre_share *share = find_share(w, this_thread(), begin);
    if (share == NULL) return;
    share->end = end;
    share->busy += end - begin;
}

static void compute_timed(const void *context, int64_t begin, int64_t end) {
    const timed_task *timed = context;
    const int64_t start = nacre_now();
    timed->task(timed->context, begin, end);
    add_share(timed->watching, start, nacre_now());
}

static void share_timed(nacre_team *team, nacre_task task, const void *context, int64_t items, int64_t *pace) {
    watching *w = (watching *)(void *)((char *)team - offsetof(watching, team));
    const timed_task timed = {w, task, context};
    w->was_shared = 1;
    w->crew->parallel(w->crew, compute_timed, &timed, items, pace);
}

static void end_part(watching *w, int64_t time) {
    if (w->part && !w->was_shared) add_share(w, w->part, time);
    w->part = 0;
}

static void begin(nacre_watch *watch) {
    watching *w = (watching *)watch;
    const int64_t time = nacre_now();
    if (w->part) {
        end_part(w, time);
    } else {
        for (int32_t i = share_count(w) - 1; i >= 0; i--) atomic_store(&w->threads[i], 0);
        atomic_store(&w->count, 0);
        w->event.begin = time;
    }
    w->part = time;
    w->was_shared = 0;
}

static void end(nacre_watch *watch, int64_t call) {
    watching *w = (watching *)watch;
    w->event.end = nacre_now();
    end_part(w, w->event.end);
    w->event.call = (int32_t)call;
    w->event.share_count = share_count(w);
    w->observer->tell(w->observer->data, &w->event);
}

int64_t nacre_run_observed(const nacre_session *session, const nacre_observer *observer, const nacre_arguments *a,
                           nacre_team *team, nacre_failure *failure) {
    watching w;
    w.base = (nacre_watch){begin, end};
    w.team.parallel = share_timed;
    w.crew = team;
    w.observer = observer;
    w.part = 0;
    atomic_init(&w.count, 0);
    for (int i = 0; i < NACRE_MOST_THREADS; i++) atomic_init(&w.threads[i], 0);
    w.event = (nacre_event){
        .run = nacre_next_run(),
        .entry = (int32_t)(a->entry - nacre_this_artifact.entries),
        .inputs = a->inputs,
        .outputs = a->outputs,
        .workspace = a->workspace,
        .dims = a->dims,
        .shares = w.shares,
    };
    const int64_t start = nacre_now();
    const int64_t failed = a->entry->observed_kernels[session->level](
        a->inputs, a->outputs, a->workspace, session->weights, a->dims, team ? &w.team : NULL, failure, &w.base);
    w.event.begin = start;
    w.event.end = nacre_now();
    w.event.call = -1;
    w.event.share_count = 0;
    observer->tell(observer->data, &w.event);
    return failed;
}

nacre_status nacre_observe(nacre_session *session, const nacre_observer *observer) {
    if (session == NULL || (observer && observer->tell == NULL))
        return nacre_fail(NACRE_INVALID, "cannot observe without %s", session ? "a callback" : "a session");
    atomic_store_explicit(&session->observer, observer, memory_order_release);
    return NACRE_OK;
}

void nacre_record_event(void *data, const nacre_event *event) {
    static const nacre_share nobody;
    nacre_recording *recording = data;
    const int64_t records = event->share_count ? event->share_count : 1;
    const int64_t first = __atomic_fetch_add(&recording->count, records, __ATOMIC_RELAXED);
    for (int64_t i = 0; i < records && first + i < recording->capacity; i++)
        recording->records[first + i] = (nacre_record){event->run,
                                                       event->entry,
                                                       event->call,
                                                       event->begin,
                                                       event->end,
                                                       event->share_count ? event->shares[i] : nobody};
}
