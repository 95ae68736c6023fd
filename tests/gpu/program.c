/* Loads the files of threaded_code.py: words that are copied, and places in them that become addresses. */
#define _GNU_SOURCE
#include "machine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* The counts at the beginning of a file, and the parts that follow them in this order; texts are offsets of strings. */
enum { LIBRARIES, FORMS, CONSTANTS, KERNELS, WORDS, FIXES, TEXT_BYTES, COUNTS };
typedef struct file_form { int64_t library, symbol; } file_form;
typedef struct file_constant { int64_t data, bytes, align; } file_constant;
typedef struct file_kernel { int64_t name, code, parameters, bytes, shared_bytes; } file_kernel;
/* A word that becomes the address of a form, a constant or a text. */
typedef struct file_fix { int64_t word, kind, value; } file_fix;
enum { FIX_FORM, FIX_CONSTANT, FIX_TEXT };

static int64_t *read_words(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return NULL;
    fseek(file, 0, SEEK_END);
    const size_t bytes = (size_t)ftell(file);
    int64_t *words = malloc(bytes + 8);
    rewind(file);
    const size_t read = fread(words, 1, bytes, file);
    fclose(file);
    if (read == bytes && bytes >= COUNTS * sizeof *words) return words;
    free(words);
    return NULL;
}

/* Sets the words that are addresses. Returns whether all forms were found. */
static int fix_words(int64_t *words, const file_fix *fixes, int64_t count, const int64_t *forms, const constant *constants,
                     const char *texts) {
    for (int64_t i = 0; i < count; i++) {
        const file_fix each = fixes[i];
        const void *address = each.kind == FIX_CONSTANT ? constants[each.value].begin : texts + each.value;
        words[each.word] = each.kind == FIX_FORM ? forms[each.value] : (int64_t)(uintptr_t)address;
        if (words[each.word] == 0) return 0;
    }
    return 1;
}

/* The programs of this process, which stay: messages point to their texts. */
static struct known { char *path; program *program; struct known *next; } *all_known;

const program *load_program(const char *path, char *message, size_t capacity) {
    for (struct known *each = all_known; each; each = each->next)
        if (strcmp(each->path, path) == 0) return each->program;
    int64_t *file = read_words(path);
    if (file == NULL) { snprintf(message, capacity, "%s cannot be read", path); return NULL; }
    const int64_t *libraries = file + COUNTS;
    const file_form *forms = (const file_form *)(libraries + file[LIBRARIES]);
    const file_constant *constants = (const file_constant *)(forms + file[FORMS]);
    const file_kernel *kernels = (const file_kernel *)(constants + file[CONSTANTS]);
    int64_t *words = (int64_t *)(kernels + file[KERNELS]);
    const file_fix *fixes = (const file_fix *)(words + file[WORDS]);
    const char *texts = (const char *)(fixes + file[FIXES]);
    program *made = malloc(sizeof *made);
    *made = (program){calloc((size_t)file[KERNELS] + 1, sizeof *made->kernels),
                      calloc((size_t)file[CONSTANTS] + 1, sizeof *made->constants), (int)file[KERNELS],
                      (int)file[CONSTANTS]};
    void **opened = calloc((size_t)file[LIBRARIES] + 1, sizeof *opened);
    for (int64_t i = 0; i < file[LIBRARIES]; i++) opened[i] = dlopen(texts + libraries[i], RTLD_NOW | RTLD_LOCAL);
    int64_t *addresses = calloc((size_t)file[FORMS] + 1, sizeof *addresses);
    for (int64_t i = 0; i < file[FORMS]; i++) {
        void *library = opened[forms[i].library];
        if (library) addresses[i] = (int64_t)(uintptr_t)dlsym(library, texts + forms[i].symbol);
    }
    free(opened);
    for (int64_t i = 0; i < file[CONSTANTS]; i++) {
        const size_t align = constants[i].align < 8 ? 8 : (size_t)constants[i].align, bytes = (size_t)constants[i].bytes;
        made->constants[i] = (constant){aligned_alloc(align, (bytes + align - 1) / align * align), bytes};
        memcpy(made->constants[i].begin, texts + constants[i].data, bytes);
    }
    for (int64_t i = 0; i < file[KERNELS]; i++) {
        const file_kernel each = kernels[i];
        made->kernels[i] = (kernel){texts + each.name, words + each.code, words + each.parameters, (uint64_t)each.bytes,
                                    (uint64_t)each.shared_bytes};
    }
    const int is_whole = fix_words(words, fixes, file[FIXES], addresses, made->constants, texts);
    free(addresses);
    if (!is_whole) { snprintf(message, capacity, "%s lacks a form of an instruction", path); return NULL; }
    struct known *added = malloc(sizeof *added);
    *added = (struct known){strdup(path), made, all_known}, all_known = added;
    return made;
}

const kernel *find_kernel(const program *of, const char *name) {
    for (int i = 0; i < of->kernel_count; i++)
        if (strcmp(of->kernels[i].name, name) == 0) return &of->kernels[i];
    return NULL;
}

/* Loads a program and runs one of its kernels, for tests without a driver. */
int run_program(const char *path, const char *name, machine *m, uint32_t blocks, uint32_t threads,
                const uint8_t *parameters) {
    const program *made = load_program(path, m->error, sizeof m->error);
    const kernel *found = made ? find_kernel(made, name) : NULL;
    return found ? run_grid(m, found, 0, blocks, threads, parameters) : 1;
}
