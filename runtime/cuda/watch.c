/* Observed calls on a GPU: the host waits for each kernel, and copies the tensors that it wrote to host memory, where the
 * observer reads them. */
#include "session.h"

/* The state of an observed call, on the stack of its caller. */
typedef struct {
    nacre_device_hooks hooks;
    nacre_device_session *session;
    const nacre_device_run *run;
    const nacre_device_watch *watch;
    nacre_event event;
    int is_running; /* whether a part of the kernel has been launched, and its end has not been recorded */
} watching;

/* Waits for all kernels. Returns whether the call continues. */
static int complete(const watching *w) {
    nacre_device_session *session = w->session;
    if (session->status) return 0;
    return nacre_went_well(session, session->program->driver->synchronize(session->stream), "complete a kernel");
}

static void begin(nacre_watch *watch) {
    watching *w = (watching *)watch;
    if (w->is_running || !complete(w)) return;
    w->event.begin = nacre_now();
    w->is_running = 1;
}

/* Records the end of the kernel, unless it is recorded already. */
static int finish(watching *w) {
    if (!w->is_running) return w->session->status == NACRE_OK;
    w->is_running = 0;
    if (!complete(w)) return 0;
    w->event.end = nacre_now();
    return 1;
}

static void end(nacre_watch *watch, int64_t call) {
    watching *w = (watching *)watch;
    if (!finish(w) || !complete(w)) return; /* copies of the kernel's tensors may be in progress */
    w->event.call = (int32_t)call;
    w->watch->observer->tell(w->watch->observer->data, &w->event);
}

/* Returns the address at which the observer reads a tensor. */
static void *find_shown(const watching *w, const char *pointer) {
    const char *workspace = w->run->workspace;
    if (pointer >= workspace && pointer < workspace + w->watch->workspace_bytes)
        return w->event.workspace + (pointer - workspace);
    for (int32_t i = 0; i < w->watch->output_count; i++)
        if (pointer == w->run->outputs[i]) return w->event.outputs[i];
    return NULL;
}

static void show(nacre_device_hooks *hooks, const void *pointer, int64_t bytes) {
    watching *w = (watching *)hooks;
    const nacre_driver *driver = w->session->program->driver;
    if (!finish(w) || bytes == 0) return;
    void *target = find_shown(w, pointer);
    const driver_pointer source = (driver_pointer)(uintptr_t)pointer;
    if (target)
        nacre_went_well(w->session, driver->to_host(target, source, (size_t)bytes, w->session->stream),
                        "return a tensor to an observer");
}

/* Entries call it for each tensor that a kernel has written, before they call `end`. */
void nacre_device_show(nacre_watch *watch, const void *pointer, int64_t bytes) {
    nacre_device_hooks *hooks = (nacre_device_hooks *)watch;
    if (hooks->show) hooks->show(hooks, pointer, bytes);
}

int64_t nacre_run_watched(nacre_device_session *session, const nacre_device_run *run, const nacre_device_watch *watch) {
    watching w = {{{begin, end}, show}, session, run, watch, watch->event, 0};
    const char *weights = (const char *)(uintptr_t)session->program->weights;
    const int64_t start = nacre_now();
    const int64_t failed = watch->code(run->inputs, run->outputs, run->workspace, weights, run->dims, &session->team,
                                       run->failure, &w.hooks.base);
    if (!complete(&w)) return failed;
    w.event.begin = start;
    w.event.end = nacre_now();
    w.event.call = -1;
    watch->observer->tell(watch->observer->data, &w.event);
    return failed;
}
