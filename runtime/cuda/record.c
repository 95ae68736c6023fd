/* Recorded calls on a GPU: the device stores the times of its kernels in events, and the host does not wait for them.
 *
 *   stream    start | begin, kernel 0, end | begin, kernel 1, end | ... | finish
 *   host      waits after `start`, where both clocks agree, and at the end
 */
#include "session.h"

/* The kernels whose events are read together. */
enum { MOST_MARKS = 256 };

/* The events before and after a kernel, and the number of its call. */
typedef struct mark {
    driver_event begin, end;
    int64_t call;
} mark;

/* The state of a recorded call, on the stack of its caller. */
typedef struct {
    nacre_device_hooks hooks;
    nacre_device_session *session;
    const nacre_observer *observer;
    nacre_event event;
    driver_event start, finish;
    int64_t origin; /* time of the event `start` for the host */
    int count, is_running; /* complete marks, and whether the next one has begun */
    mark marks[MOST_MARKS];
} recording;

static const nacre_driver *driver_of(const recording *r) { return r->session->program->driver; }

static int create(recording *r, driver_event *event) {
    if (*event) return 1;
    if (nacre_went_well(r->session, driver_of(r)->create_event(event, 0), "create an event")) return 1;
    *event = NULL;
    return 0;
}

static int store_time(recording *r, driver_event event) {
    return nacre_went_well(r->session, driver_of(r)->record_event(event, r->session->stream), "store a time");
}

static int complete(recording *r) {
    return nacre_went_well(r->session, driver_of(r)->synchronize(r->session->stream), "complete a kernel");
}

/* Returns whether the time of an event could be read. */
static int read_time(recording *r, driver_event event, int64_t *time) {
    float milliseconds = 0;
    const int result = driver_of(r)->elapsed_time(&milliseconds, r->start, event);
    *time = r->origin + (int64_t)(1e6 * (double)milliseconds);
    return nacre_went_well(r->session, result, "tell a time");
}

static void tell(recording *r, driver_event begin, driver_event end, int64_t call) {
    if (!read_time(r, begin, &r->event.begin) || !read_time(r, end, &r->event.end)) return;
    r->event.call = (int32_t)call;
    r->observer->tell(r->observer->data, &r->event);
}

/* Waits for the kernels of all marks, and tells their times. */
static void flush(recording *r) {
    if (r->session->status || !complete(r)) return;
    for (int i = 0; i < r->count && !r->session->status; i++) tell(r, r->marks[i].begin, r->marks[i].end, r->marks[i].call);
    r->count = 0;
}

/* Creates both events first, so that the time between them has no other work of the host than the launch. */
static void begin(nacre_watch *watch) {
    recording *r = (recording *)watch;
    if (r->is_running || r->session->status) return;
    if (r->count == MOST_MARKS) flush(r);
    mark *next = &r->marks[r->count < MOST_MARKS ? r->count : 0];
    if (!r->session->status && create(r, &next->begin) && create(r, &next->end)) r->is_running = store_time(r, next->begin);
}

static void end(nacre_watch *watch, int64_t call) {
    recording *r = (recording *)watch;
    if (!r->is_running) return;
    r->is_running = 0;
    if (r->session->status || !store_time(r, r->marks[r->count].end)) return;
    r->marks[r->count++].call = call;
}

static void release(recording *r, driver_event event) {
    if (event) driver_of(r)->destroy_event(event);
}

int64_t nacre_run_recorded(nacre_device_session *session, const nacre_device_run *run, const nacre_device_watch *watch) {
    recording r = {.hooks = {{begin, end}, NULL}, .session = session, .observer = watch->observer, .event = watch->event};
    const char *weights = (const char *)(uintptr_t)session->program->weights;
    int64_t failed = 0;
    if (create(&r, &r.start) && create(&r, &r.finish) && store_time(&r, r.start) && complete(&r)) {
        r.origin = nacre_now();
        failed = watch->code(run->inputs, run->outputs, run->workspace, weights, run->dims, &session->team, run->failure,
                             &r.hooks.base);
        if (!session->status && store_time(&r, r.finish)) flush(&r);
        if (!session->status) tell(&r, r.start, r.finish, -1);
    }
    release(&r, r.start);
    release(&r, r.finish);
    for (int i = 0; i < MOST_MARKS; i++) {
        release(&r, r.marks[i].begin);
        release(&r, r.marks[i].end);
    }
    return failed;
}
