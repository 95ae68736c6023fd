/* Finds the pool of the process, or creates it.
 *
 * The variables of an artifact are hidden, so another one cannot refer to them by name. Each has an ELF note with the
 * address of its anchor, a variable that is NULL or points to the pool; the dynamic loader lists the notes of all
 * libraries. The first library that needs the pool creates it, and stores it in the anchor of the library that was
 * loaded first, where all libraries find it.
 *
 *   loaded    a.so, note -> anchor   b.so, note -> anchor   c.so, note -> anchor
 *   before              NULL                   NULL                   NULL
 *   b shares            pool                   pool                   NULL       b has created the pool
 *   c shares            pool                   pool                   pool       c has found it in the anchor of a
 */
#define _GNU_SOURCE
#include "share.h"

#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "job.h"

#define NOTE_TYPE 2u
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

typedef _Atomic(nacre_pool *) anchor;

extern anchor nacre_pool_anchor;
__attribute__((visibility("hidden"), used)) anchor nacre_pool_anchor;

/* The note: its owner, the layout of the pool, and the distance from this field to the anchor, 4 + 8 bytes. */
__asm__(".pushsection .note.nacre,\"a\",%note\n"
        ".balign 4\n"
        ".4byte 6, 12, 2\n"
        ".ascii \"Nacre\\0\\0\\0\"\n"
        ".4byte " TEXT(NACRE_POOL_LAYOUT) "\n"
        ".8byte nacre_pool_anchor - .\n"
        ".popsection\n");

/* Returns the anchor that a segment of notes names, or NULL. */
static anchor *read_notes(const char *at, const char *end, size_t alignment) {
    while ((size_t)(end - at) >= sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *head = (const ElfW(Nhdr) *)(const void *)at;
        const char *name = at + sizeof *head;
        const size_t name_bytes = (head->n_namesz + alignment - 1) / alignment * alignment;
        const size_t bytes = (head->n_descsz + alignment - 1) / alignment * alignment;
        if (name_bytes > (size_t)(end - name) || bytes > (size_t)(end - name) - name_bytes) return NULL;
        if (head->n_type == NOTE_TYPE && head->n_namesz == 6 && memcmp(name, "Nacre", 6) == 0 &&
            head->n_descsz == 12) {
            uint32_t layout;
            int64_t distance;
            const char *data = name + name_bytes + sizeof layout;
            memcpy(&layout, name + name_bytes, sizeof layout);
            memcpy(&distance, data, sizeof distance);
            if (layout == NACRE_POOL_LAYOUT) return (anchor *)((uintptr_t)data + (uintptr_t)distance);
        }
        at = name + name_bytes + bytes;
    }
    return NULL;
}

static anchor *find_anchor(const struct dl_phdr_info *info) {
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *notes = &info->dlpi_phdr[i];
        if (notes->p_type != PT_NOTE) continue;
        const char *at = (const char *)(uintptr_t)(info->dlpi_addr + notes->p_vaddr);
        anchor *found = read_notes(at, at + notes->p_memsz, notes->p_align == 8 ? 8 : 4);
        if (found) return found;
    }
    return NULL;
}

typedef struct {
    anchor *first; /* the anchor of the library that was loaded first */
    nacre_pool *pool;
} search;

static int look(struct dl_phdr_info *info, size_t size, void *context) {
    search *found = context;
    (void)size;
    anchor *seen = find_anchor(info);
    if (seen == NULL) return 0;
    if (found->first == NULL) found->first = seen;
    found->pool = atomic_load(seen);
    return found->pool != NULL;
}

static int take_down(struct dl_phdr_info *info, size_t size, void *context) {
    nacre_pool *pool = context;
    (void)size;
    anchor *seen = find_anchor(info);
    if (seen) atomic_compare_exchange_strong(seen, &pool, NULL);
    return 0;
}

void nacre_pool_start(nacre_pool *pool) {
    pool->process = getpid();
    nacre_parking_start(&pool->parking);
    atomic_store(&pool->seats, 0);
    atomic_store(&pool->crowd, 0);
    atomic_store(&pool->started, 0);
    atomic_store(&pool->awake, 0);
    atomic_store(&pool->wanted, 0);
    atomic_store(&pool->grants, 0);
    for (int seat = 0; seat < NACRE_SEATS; seat++) {
        const uint64_t state = atomic_load(&pool->jobs[seat].state);
        atomic_store(&pool->jobs[seat].state, (uint64_t)GENERATION(state) << 32);
    }
}

static void make(search *found) {
    nacre_pool *made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return;
    nacre_pool_start(made);
    if (atomic_compare_exchange_strong(found->first, &found->pool, made))
        found->pool = made;
    else
        munmap(made, sizeof *made);
}

/* `attach` and `detach` run inside a callback of dl_iterate_phdr. Meanwhile, glibc loads and unloads nothing, and runs
 * no other callback. Other C libraries do not guarantee this: with them, the pool is never freed. */
#ifdef __GLIBC__
#define CALLBACKS_EXCLUDE 1
#else
#define CALLBACKS_EXCLUDE 0
#endif

static int attach(struct dl_phdr_info *info, size_t size, void *context) {
    search *found = context;
    (void)info, (void)size;
    dl_iterate_phdr(look, found);
    if (found->first == NULL) found->first = &nacre_pool_anchor;
    if (found->pool == NULL) make(found);
    if (found->pool) {
        atomic_fetch_add(&found->pool->references, 1);
        atomic_store(&nacre_pool_anchor, found->pool);
    }
    return 1;
}

static int detach(struct dl_phdr_info *info, size_t size, void *context) {
    nacre_pool *pool = context;
    (void)info, (void)size;
    if (atomic_fetch_sub(&pool->references, 1) == 1 && CALLBACKS_EXCLUDE) {
        dl_iterate_phdr(take_down, pool);
        munmap(pool, sizeof *pool);
    }
    return 1;
}

nacre_pool *nacre_pool_attach(void) {
    search found = {.first = NULL, .pool = NULL};
    dl_iterate_phdr(attach, &found);
    return found.pool;
}

void nacre_pool_detach(nacre_pool *pool) { dl_iterate_phdr(detach, pool); }
