/* Replaces workers, pool and weights on systems without threads and files: calls run on the calling thread, and weights
 * are embedded. */
#include "internal.h"
#include "pool.h"
#include "workers.h"

nacre_status nacre_library_open(int32_t *cpus) {
    *cpus = 1;
    return NACRE_OK;
}

void nacre_library_close(void) {}

int nacre_process_number(void) { return 1; }

nacre_crew nacre_crew_of(uint32_t threads) {
    (void)threads;
    return (nacre_crew){.seat = -1};
}

void nacre_crew_leave(nacre_crew *crew) { (void)crew; }

nacre_status nacre_open_weights(nacre_session *session, const nacre_options *options) {
    session->weights = nacre_this_artifact.weights;
    if (options->weights == NULL) return NACRE_OK;
    return nacre_fail(NACRE_INVALID, "the artifact carries its own weights and takes no weights file, got `%s`",
                      options->weights);
}

void nacre_close_weights(nacre_session *session) { (void)session; }
