/* Records the kernels of repeated calls as CUDA graphs, and launches the graphs; see graph.h. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

#include "session.h"

/* Limits of a session: calls with graphs, graphs of a call, remembered calls that ran once without graphs; and the
 * least number of operations of a graph. */
enum { MOST_CALLS = 16, MOST_PARTS = 16, REMEMBERED = 16, FEWEST_OPERATIONS = 2 };
enum { NON_BLOCKING = 1, RELAXED = 2 };

/* A graph, and the number that the host reads after it: its address, its bytes, and its value. `bytes` is 0 for the
 * last graph of a call, after which the host reads nothing. */
typedef struct part {
    driver_exec graph; /* NULL: no operation precedes the number */
    const void *pointer;
    int bytes;
    int64_t value;
} part;

typedef struct recorded_call {
    uint64_t *key; /* NULL: this slot is free */
    int32_t key_words, part_count;
    uint64_t last_use;
    part parts[MOST_PARTS];
} recorded_call;

/* The modes of the functions that an entry calls: they queue operations, record them, or do nothing until the host has
 * read `skipped` numbers again. */
enum { QUEUES, RECORDS, SKIPS };

struct nacre_graphs {
    recorded_call calls[MOST_CALLS];
    uint64_t seen[REMEMBERED], uses;
    int next_seen, mode;
    driver_stream stream; /* stream of recordings; NULL before the first recording */
    int is_recording;     /* whether an operation has been recorded since the last graph */
    recorded_call *current;
    int operations, reads, skipped;
};

nacre_graphs *nacre_create_graphs(void) { return calloc(1, sizeof(nacre_graphs)); }

static void drop(const nacre_driver *driver, recorded_call *call) {
    for (int32_t i = 0; i < call->part_count; i++)
        if (call->parts[i].graph) driver->destroy_exec(call->parts[i].graph);
    free(call->key);
    *call = (recorded_call){0};
}

void nacre_release_graphs(nacre_device_session *session) {
    nacre_graphs *own = session->graphs;
    const nacre_driver *driver = session->program->driver;
    if (own == NULL) return;
    for (int i = 0; i < MOST_CALLS; i++) drop(driver, &own->calls[i]);
    if (own->stream) driver->destroy_stream(own->stream);
    free(own);
    session->graphs = NULL;
}

/* FNV-1a of words, never 0. Two calls with equal hashes only cause a recording at the first call. */
static uint64_t hash(const nacre_device_run *run) {
    uint64_t made = 14695981039346656037u;
    for (int32_t i = 0; i < run->key_words; i++) made = (made ^ run->key[i]) * 1099511628211u;
    return made | 1;
}

static recorded_call *find_call(nacre_graphs *own, const nacre_device_run *run) {
    for (int i = 0; i < MOST_CALLS; i++) {
        recorded_call *call = &own->calls[i];
        if (call->key && call->key_words == run->key_words && !memcmp(call->key, run->key, 8 * (size_t)run->key_words))
            return call;
    }
    return NULL;
}

/* Returns whether the session remembers the hash of a call, and removes the hash. */
static int was_seen(nacre_graphs *own, uint64_t name) {
    for (int i = 0; i < REMEMBERED; i++)
        if (own->seen[i] == name) {
            own->seen[i] = 0;
            return 1;
        }
    return 0;
}

static int64_t run_code(nacre_device_session *session, const nacre_device_run *run) {
    const char *weights = (const char *)(uintptr_t)session->program->weights;
    return run->code(run->inputs, run->outputs, run->workspace, weights, run->dims, &session->team, run->failure);
}

/* Returns a slot for a call: a free one, or that of the least recently used call, which it drops. */
static recorded_call *take_slot(nacre_device_session *session, const nacre_device_run *run) {
    nacre_graphs *own = session->graphs;
    recorded_call *oldest = &own->calls[0];
    for (int i = 1; i < MOST_CALLS; i++)
        if (own->calls[i].last_use < oldest->last_use) oldest = &own->calls[i];
    drop(session->program->driver, oldest);
    oldest->key = malloc(8 * (size_t)run->key_words);
    if (oldest->key == NULL) return NULL;
    memcpy(oldest->key, run->key, 8 * (size_t)run->key_words);
    oldest->key_words = run->key_words;
    oldest->last_use = ++own->uses;
    return oldest;
}

/* Ends the recording, and launches its graph. */
static void finish_part(nacre_device_session *session, const void *pointer, int bytes) {
    nacre_graphs *own = session->graphs;
    const nacre_driver *driver = session->program->driver;
    driver_exec made = NULL;
    if (own->is_recording) {
        driver_graph graph = NULL;
        own->is_recording = 0;
        const int result = driver->end_capture(own->stream, &graph);
        if (nacre_went_well(session, result, "record a graph") &&
            !nacre_went_well(session, driver->instantiate(&made, graph, 0), "create a graph"))
            made = NULL;
        if (graph) driver->destroy_graph(graph);
        if (made) nacre_went_well(session, driver->launch_graph(made, session->stream), "launch a graph");
    }
    own->current->parts[own->current->part_count++] = (part){made, pointer, bytes, 0};
    /* The last slot is for the end of the call. A call that reads more numbers continues without graphs. */
    if (pointer && own->current->part_count == MOST_PARTS - 1) own->mode = QUEUES;
}

static int64_t record(nacre_device_session *session, const nacre_device_run *run) {
    nacre_graphs *own = session->graphs;
    const nacre_driver *driver = session->program->driver;
    if (!own->stream && !nacre_went_well(session, driver->create_stream(&own->stream, NON_BLOCKING), "create a stream")) {
        own->stream = NULL;
        return 0;
    }
    own->current = take_slot(session, run);
    if (own->current == NULL) return run_code(session, run);
    own->mode = RECORDS;
    const int64_t failed = run_code(session, run);
    const int is_whole = own->mode == RECORDS && !failed;
    if (own->is_recording || is_whole) finish_part(session, NULL, 0);
    own->mode = QUEUES;
    if (!is_whole || session->status) drop(driver, own->current);
    if (session->status) {
        /* After an error, the stream may still be recording. */
        driver->destroy_stream(own->stream);
        own->stream = NULL;
    }
    return failed;
}

static int64_t replay(nacre_device_session *session, recorded_call *call, const nacre_device_run *run) {
    nacre_graphs *own = session->graphs;
    const nacre_driver *driver = session->program->driver;
    call->last_use = ++own->uses;
    for (int32_t i = 0; i < call->part_count; i++) {
        const part *each = &call->parts[i];
        if (each->graph && !nacre_went_well(session, driver->launch_graph(each->graph, session->stream), "launch a graph"))
            return 0;
        if (!each->bytes) return 0;
        const int64_t value = nacre_read_number(session, each->pointer, each->bytes);
        if (session->status) return 0;
        if (value == each->value) continue;
        /* The code of the entry runs from its beginning, and its operations up to this number do nothing. */
        const int64_t usual = each->value;
        call->parts[i].value = value;
        own->current = call;
        own->mode = SKIPS;
        own->skipped = 0;
        own->reads = i + 1;
        const int64_t failed = run_code(session, run);
        own->mode = QUEUES;
        call->parts[i].value = usual;
        return failed;
    }
    return 0;
}

int64_t nacre_run_graphs(nacre_device_session *session, const nacre_device_run *run) {
    nacre_graphs *own = session->graphs;
    if (own == NULL) return run_code(session, run);
    recorded_call *known = find_call(own, run);
    if (known) return replay(session, known, run);
    const uint64_t name = hash(run);
    if (was_seen(own, name)) return record(session, run);
    own->operations = own->reads = 0;
    const int64_t failed = run_code(session, run);
    /* A graph of a single kernel is not faster than the kernel. */
    if (!failed && !session->status && own->operations >= FEWEST_OPERATIONS && own->reads < MOST_PARTS - 1) {
        own->seen[own->next_seen] = name;
        own->next_seen = (own->next_seen + 1) % REMEMBERED;
    }
    return failed;
}

int nacre_begin_operation(nacre_device_session *session, driver_stream *stream) {
    nacre_graphs *own = session->graphs;
    *stream = session->stream;
    if (session->status) return 0;
    if (own == NULL) return 1;
    if (own->mode == SKIPS) return 0;
    own->operations++;
    if (own->mode == QUEUES) return 1;
    if (!own->is_recording) {
        const int result = session->program->driver->begin_capture(own->stream, RELAXED);
        if (!nacre_went_well(session, result, "record a graph")) return 0;
        own->is_recording = 1;
    }
    *stream = own->stream;
    return 1;
}

int nacre_begin_read(nacre_device_session *session, const void *pointer, int bytes, int64_t *known) {
    nacre_graphs *own = session->graphs;
    if (own == NULL) return 1;
    if (own->mode == SKIPS) {
        *known = own->current->parts[own->skipped++].value;
        if (own->skipped == own->reads) own->mode = QUEUES;
        return 0;
    }
    own->reads++;
    if (own->mode == RECORDS) finish_part(session, pointer, bytes);
    return 1;
}

void nacre_end_read(nacre_device_session *session, int64_t value) {
    nacre_graphs *own = session->graphs;
    if (own && own->mode == RECORDS) own->current->parts[own->current->part_count - 1].value = value;
}
