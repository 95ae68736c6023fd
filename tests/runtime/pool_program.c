/* Checks of the pool without an artifact around it. The CPUs that it counts are made up, so that several workers run on
 * whatever machine this is.
 *
 *   pool_program CHECK   prints `ok`, or what is wrong
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fenv.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "affinity.h"
#include "internal.h"
#include "job.h"
#include "pool.h"
#include "share.h"
#include "workers.h"

#define MOST_UNITS 5000
#define SLOW INT64_C(100000000) /* a pace that makes every kernel worth sharing */

static int cpus = 8;
static int extra_threads; /* a sanitizer's own */

void nacre_allowed_cpus(nacre_cpus *allowed) { *allowed = (nacre_cpus){.count = cpus}; }

int nacre_current_cpu(void) { return 0; } /* so that workers always try to move */

void nacre_leave_cpu(int cpu) { (void)cpu; }

static _Thread_local int offers; /* of this thread, to let another one have its CPU */

int sched_yield(void) {
    offers++;
    return (int)syscall(SYS_sched_yield);
}

void nacre_allow_cpus(pthread_t thread, const nacre_cpus *allowed) { (void)thread, (void)allowed; }

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vprintf(format, values);
    va_end(values);
    puts("");
    fflush(stdout);
    _exit(1);
}

static void expect(int holds, const char *what) {
    if (!holds) fail("%s", what);
}

static void open_session(void) {
    int32_t count = 0;
    if (nacre_library_open(&count) || count != cpus) fail("cannot open: %s", nacre_last_error());
}

static int count_tasks(void) {
    int count = -extra_threads;
    DIR *folder = opendir("/proc/self/task");
    if (folder == NULL) fail("no /proc");
    for (const struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* A thread that was joined may be listed for another moment. */
static int count_threads(int expected) {
    int count = count_tasks();
    for (int i = 0; i < 1000 && count > expected; i++, count = count_tasks()) usleep(1000);
    return count;
}

static void expect_threads(int count, const char *otherwise) {
    const int found = count_threads(count);
    if (found > count) fail("%s: %d threads, not %d", otherwise, found, count);
}

/* Plain bytes and floats: two threads that do one unit are a race that the sanitizers see. */
typedef struct {
    unsigned char done[MOST_UNITS];
    float values[MOST_UNITS];
    float scale;
} units;

static float value_of(float scale, int64_t unit) {
    float value = scale;
    for (int64_t i = 0; i < 20 + unit % 50; i++) value = value * 0.99f + (float)unit * 0.01f;
    return value;
}

static void compute(const void *context, int64_t begin, int64_t end) {
    units *all = *(units *const *)context;
    for (int64_t unit = begin; unit < end; unit++) {
        all->done[unit]++;
        all->values[unit] = value_of(all->scale, unit);
    }
}

static void check_units(const units *all, int64_t count) {
    for (int64_t unit = 0; unit < MOST_UNITS; unit++)
        if (all->done[unit] != (unit < count)) fail("unit %d was done %d times", (int)unit, all->done[unit]);
    for (int64_t unit = 0; unit < count; unit++)
        if (all->values[unit] != value_of(all->scale, unit)) fail("unit %d is wrong", (int)unit);
}

/* A call of some kernels, each of its own number of units. */
static void call(uint32_t threads, int kernels, unsigned seed) {
    units *all = calloc(1, sizeof *all);
    if (all == NULL) fail("no memory");
    nacre_crew crew = nacre_crew_of(threads);
    for (int kernel = 0; kernel < kernels; kernel++) {
        const int64_t count = 2 + (int64_t)(seed = seed * 1103515245u + 12345u) % (MOST_UNITS - 2);
        int64_t pace = kernel % 3 ? SLOW : 0;
        memset(all->done, 0, sizeof all->done);
        all->scale = (float)seed;
        nacre_parallel(&crew.base, compute, &all, count, &pace);
        check_units(all, count);
        expect(pace > 0, "no pace was kept");
    }
    nacre_crew_leave(&crew);
    free(all);
}

static void check_every_unit_once(void) {
    open_session();
    for (uint32_t threads = 1; threads <= 8; threads++) call(threads, 20, threads);
    expect(count_tasks() > 1, "no worker was started");
    expect_threads(cpus, "more threads than CPUs");
    nacre_library_close();
    expect_threads(1, "workers outlive the last session");
}

typedef struct {
    pthread_t caller;
    unsigned char by_helper[MOST_UNITS];
    float values[MOST_UNITS];
} sides;

static void note_side(const void *context, int64_t begin, int64_t end) {
    sides *all = *(sides *const *)context;
    for (int64_t unit = begin; unit < end; unit++) {
        all->by_helper[unit] = !pthread_equal(pthread_self(), all->caller);
        for (int i = 0; i < 100; i++) all->values[unit] += value_of(1.0f, unit);
    }
}

static void check_sides_meet(void) {
    open_session();
    sides *all = calloc(1, sizeof *all);
    if (all == NULL) fail("no memory");
    int shared = 0;
    for (int round = 0; round < 1000 && shared < 5; round++) {
        nacre_crew crew = nacre_crew_of(2 + round % 3);
        int64_t pace = SLOW;
        *all = (sides){.caller = pthread_self()};
        nacre_parallel(&crew.base, note_side, &all, MOST_UNITS, &pace);
        const nacre_job *job = crew.seat < 0 ? NULL : crew.job;
        const int64_t middle = job == NULL ? MOST_UNITS : job->first + job->middle * job->chunk;
        nacre_crew_leave(&crew);
        for (int64_t unit = 1; unit < MOST_UNITS; unit++) {
            const int now = all->by_helper[unit], before = all->by_helper[unit - 1];
            if (unit < middle) expect(now >= before, "a helper took a unit of the caller's share before its last");
            if (unit > middle) expect(now <= before, "the caller took a unit of the helpers' share before their last");
        }
        shared += middle < MOST_UNITS && all->by_helper[middle] && !all->by_helper[0];
    }
    expect(shared == 5, "no kernel was shared");
    free(all);
    nacre_library_close();
}

static atomic_int over;

static void *call_often(void *argument) {
    const unsigned number = (unsigned)(uintptr_t)argument;
    for (unsigned i = 0; i < 40 && !over; i++) {
        open_session();
        call(2 + (number + i) % 7, 3, number * 1000 + i);
        nacre_library_close();
    }
    return NULL;
}

static void check_many_sessions(void) {
    pthread_t threads[6];
    open_session();
    for (uintptr_t i = 0; i < 6; i++) pthread_create(&threads[i], NULL, call_often, (void *)i);
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    expect_threads(cpus, "more threads than CPUs");
    nacre_library_close();
    /* Now without a session that outlives the others, so that workers stop while calls begin. */
    for (uintptr_t i = 0; i < 6; i++) pthread_create(&threads[i], NULL, call_often, (void *)i);
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    expect_threads(1, "workers outlive the last session");
}

static void check_fork(void) {
    pthread_t threads[3];
    open_session();
    call(2, 5, 1);
    for (uintptr_t i = 0; i < 3; i++) pthread_create(&threads[i], NULL, call_often, (void *)i);
    for (unsigned i = 0; i < 20; i++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);
            expect(count_tasks() == 1, "the child of a fork has workers");
            call(2, 3, i);
            expect(count_tasks() == 2, "the child started no worker");
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (status) fail("a child ended with %x", status);
    }
    over = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    call(2, 5, 1);
    nacre_library_close();
}

static void check_one_cpu(void) {
    cpus = 1;
    open_session();
    call(8, 10, 1);
    expect(count_tasks() == 1, "a worker was started for one CPU");
    nacre_library_close();
}

static void check_sessions_come_and_go(void) {
    for (unsigned i = 0; i < 1000; i++) {
        open_session();
        call(4, i % 10 ? 0 : 2, i);
        expect_threads(4, "sessions pile up threads");
        nacre_library_close();
    }
    expect_threads(1, "threads are left");
}

static void do_nothing(const void *context, int64_t begin, int64_t end) { (void)context, (void)begin, (void)end; }

static void check_little_work_stays(void) {
    open_session();
    int64_t pace = 1;
    for (int i = 0; i < 1000; i++) {
        nacre_crew crew = nacre_crew_of(8);
        nacre_parallel(&crew.base, do_nothing, NULL, 4, &pace);
        nacre_crew_leave(&crew);
    }
    expect(count_tasks() == 1, "a worker was started for nothing");
    nacre_library_close();
}

/* Threads that did units of a job, each of which takes a while without a CPU. */
typedef struct {
    pthread_mutex_t lock;
    pthread_t seen[16];
    int count;
} visitors;

static void linger(const void *context, int64_t begin, int64_t end) {
    visitors *all = *(visitors *const *)context;
    pthread_mutex_lock(&all->lock);
    int known = 0;
    for (int i = 0; i < all->count; i++) known |= pthread_equal(all->seen[i], pthread_self());
    if (!known) all->seen[all->count++] = pthread_self();
    pthread_mutex_unlock(&all->lock);
    usleep((unsigned)(end - begin) * 2000);
}

static void *call_slowly(void *argument) {
    int64_t pace = SLOW;
    nacre_crew crew = nacre_crew_of(8);
    nacre_parallel(&crew.base, linger, &argument, 600, &pace);
    nacre_crew_leave(&crew);
    return NULL;
}

static void check_workers_are_shared(void) {
    visitors first = {.lock = PTHREAD_MUTEX_INITIALIZER}, second = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread;
    open_session();
    pthread_create(&thread, NULL, call_slowly, &first);
    usleep(30000);
    call_slowly(&second);
    pthread_join(thread, NULL);
    if (first.count < 4 || first.count > cpus) fail("the first call had %d threads", first.count);
    if (second.count < 3) fail("the second call had %d threads", second.count);
    nacre_library_close();
}

static atomic_int roundings;

static void note_rounding(const void *context, int64_t begin, int64_t end) {
    (void)context;
    volatile float one = 1, little = 1e-10f;
    if (one + little > 1) roundings += (int)(end - begin);
    usleep(1000);
}

static void check_workers_round_as_the_caller(void) {
    open_session();
    call(4, 5, 1); /* starts workers that round to nearest */
    fesetround(FE_UPWARD);
    int64_t pace = SLOW;
    nacre_crew crew = nacre_crew_of(4);
    nacre_parallel(&crew.base, note_rounding, NULL, 64, &pace);
    nacre_crew_leave(&crew);
    expect(roundings == 64, "a worker rounds in its own way");
    nacre_library_close();
}

static void share(nacre_crew *crew, nacre_task task, int64_t count) {
    int64_t pace = SLOW;
    nacre_parallel(&crew->base, task, NULL, count, &pace);
}

/* Nobody sleeps yet who could be woken: the first call starts a worker, and rings for none. */
static void check_the_first_call_rings_for_nobody(void) {
    open_session();
    nacre_crew crew = nacre_crew_of(2);
    share(&crew, do_nothing, 100);
    expect(crew.seat >= 0, "the call took no seat");
    expect(atomic_load(&crew.pool->bell) == 0, "a bell rang where nobody sleeps");
    expect(atomic_load(&crew.pool->wanted) == 1, "no worker was wanted");
    nacre_crew_leave(&crew);
    nacre_library_close();
}

static void check_a_call_starts_the_workers_of_its_kernel(void) {
    open_session();
    nacre_crew crew = nacre_crew_of(8);
    for (int i = 0; i < 10; i++) share(&crew, do_nothing, 2);
    usleep(20000);
    expect(atomic_load(&crew.pool->started) <= 1, "two units started more than one worker");
    /* Two calls at once may have the helpers of both. */
    nacre_crew other = nacre_crew_of(4);
    share(&other, do_nothing, 2);
    share(&crew, do_nothing, 2);
    expect(atomic_load(&crew.pool->wanted) == cpus - 2, "two calls want as many workers as they may have together");
    nacre_crew_leave(&other);
    nacre_crew_leave(&crew);
    nacre_library_close();
}

static void doze(const void *context, int64_t begin, int64_t end) {
    (void)context, (void)begin, (void)end;
    usleep(300);
}

static void check_a_caller_that_waits_offers_its_cpu_now_and_then(void) {
    open_session();
    int all = 0;
    for (int i = 0; i < 2000 && (i < 200 || all == 0); i++) {
        nacre_crew crew = nacre_crew_of(4);
        offers = 0;
        share(&crew, doze, 5);
        if (offers > SPIN / YIELD + 1) fail("a caller offered its CPU %d times before it slept", offers);
        all += offers;
        nacre_crew_leave(&crew);
    }
    expect(all > 0, "no caller offered its CPU");
    nacre_library_close();
}

/* Waits until all workers of a pool sleep, and are as many as this; any number if it is negative. */
static void expect_asleep(nacre_pool *pool, int workers) {
    int started = 0, awake = 0, grants = 0;
    for (int i = 0; i < 5000; i++, usleep(1000)) {
        started = atomic_load(&pool->started), awake = atomic_load(&pool->awake), grants = atomic_load(&pool->grants);
        if (awake < 0 || grants < 0 || started < 0) break;
        /* Grants of workers that stopped count as awake until others take them. */
        if (workers < 0 ? awake == 0 && grants == 0 : awake == grants && started == workers) return;
    }
    fail("%d workers, %d awake with %d grants, not %d asleep", started, awake, grants, workers);
}

static void check_workers_are_counted(void) {
    nacre_pool *pool = nacre_pool_attach();
    expect(pool != NULL, "no pool");
    for (unsigned i = 0; i < 200; i++) {
        open_session();
        call(2 + i % 7, 3, i);
        /* Workers that sleep when the library stops, and workers that are awake then. */
        if (i % 8 == 0) expect_asleep(pool, -1);
        for (int seat = 0; seat < NACRE_SEATS; seat++) {
            const uint64_t state = atomic_load(&pool->jobs[seat].state);
            if (HELPERS(state) || state & OPEN) fail("a job was left with %d helpers", HELPERS(state));
        }
        nacre_library_close();
        expect_asleep(pool, 0);
    }
    nacre_pool_detach(pool);
}

static void check_jobs_of_a_pool_that_starts_again_keep_their_numbers(void) {
    static nacre_pool pool;
    const uint64_t number = UINT64_C(5) << 32;
    for (int seat = 0; seat < NACRE_SEATS; seat++) atomic_store(&pool.jobs[seat].state, number | OPEN | 3);
    nacre_pool_start(&pool);
    for (int seat = 0; seat < NACRE_SEATS; seat++)
        expect(atomic_load(&pool.jobs[seat].state) == number, "a job that nobody posted is open, or has another number");
}

static const struct {
    const char *name;
    void (*run)(void);
} checks[] = {
    {"every-unit-once", check_every_unit_once},
    {"sides-meet", check_sides_meet},
    {"many-sessions", check_many_sessions},
    {"fork", check_fork},
    {"one-cpu", check_one_cpu},
    {"sessions-come-and-go", check_sessions_come_and_go},
    {"little-work-stays", check_little_work_stays},
    {"workers-are-shared", check_workers_are_shared},
    {"workers-round-as-the-caller", check_workers_round_as_the_caller},
    {"the-first-call-rings-for-nobody", check_the_first_call_rings_for_nobody},
    {"a-call-starts-the-workers-of-its-kernel", check_a_call_starts_the_workers_of_its_kernel},
    {"a-caller-that-waits-offers-its-cpu", check_a_caller_that_waits_offers_its_cpu_now_and_then},
    {"workers-are-counted", check_workers_are_counted},
    {"jobs-keep-their-numbers", check_jobs_of_a_pool_that_starts_again_keep_their_numbers},
};

static void *return_at_once(void *argument) { return argument; }

/* A sanitizer has a thread of its own, perhaps since the first that the program starts. */
static void count_extra_threads(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, return_at_once, NULL);
    pthread_join(thread, NULL);
    extra_threads = count_tasks() - 1;
    for (int i = 0; i < 20 && extra_threads > 0; i++) {
        usleep(1000);
        extra_threads += count_tasks() - 1;
    }
}

int main(int count, char **arguments) {
    count_extra_threads();
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (count != 2 || strcmp(arguments[1], checks[i].name)) continue;
        checks[i].run();
        puts("ok");
        return 0;
    }
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) puts(checks[i].name);
    return 2;
}
