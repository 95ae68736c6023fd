/* Calls the digits model from C: reads images of 8x8 numbers, 0 (paper) to 16 (ink), and prints the digits.
 *
 *     sh samples/c/build.sh build/c && build/c/classify < samples/c/digits.txt
 *
 * `digits.h` comes from `nacre compile --emit header`; the program needs it and the artifact, and nothing of Nacre. */
#include <stdio.h>
#include <stdlib.h>

#include "digits.h"

enum { SIDE = 8, PIXELS = SIDE * SIDE, DIGITS = 10, MOST = 256 };

static int fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    return 1;
}

/* Returns the number of images of the input, or -1 if the input is not 1 to 256 whole images. */
static int read_images(FILE *input, float images[MOST * PIXELS + 1]) {
    int count = 0, read = 0;
    while (count <= MOST * PIXELS && (read = fscanf(input, "%f", &images[count])) == 1) count++;
    const int whole = read == EOF && count > 0 && count % PIXELS == 0;
    return whole ? count / PIXELS : -1;
}

int main(void) {
    static float images[MOST * PIXELS + 1], probabilities[MOST * DIGITS];
    const nacre_api *api = digits_api();
    if (!api) return fail("digits", "the artifact does not offer this version of the interface");

    const int batch = read_images(stdin, images);
    if (batch < 0) return fail("input", "expected 1 to 256 images of 64 numbers");

    nacre_session *session = NULL;
    if (api->session_create(NULL, &session)) return fail("session", api->last_error());

    /* The size of the workspace is known before a call, so calls allocate nothing. */
    const int64_t bytes = digits_classify_workspace(batch);
    void *workspace = aligned_alloc(NACRE_ALIGNMENT, (size_t)(bytes / NACRE_ALIGNMENT + 1) * NACRE_ALIGNMENT);
    if (!workspace) return fail("workspace", "out of memory");
    if (digits_classify(session, batch, images, probabilities, workspace, bytes)) {
        return fail("classify", api->last_error());
    }

    for (int i = 0; i < batch; i++) {
        const float *share = &probabilities[i * DIGITS];
        int best = 0;
        for (int digit = 1; digit < DIGITS; digit++) {
            if (share[digit] > share[best]) best = digit;
        }
        printf("%d (%.1f %%)\n", best, 100 * share[best]);
    }

    free(workspace);
    api->session_destroy(session);
    return 0;
}
