/* Notes of loaded libraries, read from memory: the note of an artifact, and notes that are damaged or end too early. */

#include "share.c" /* first: it defines what it needs of the system */

#include <stdio.h>
#include <stdlib.h>

#define HEAD 12
#define WORDS 64

/* A note as an artifact has it. */
static size_t write_note(char *to, const char *name, uint32_t type, uint32_t described, uint32_t layout) {
    const uint32_t name_bytes = (uint32_t)strlen(name) + 1, padded = (name_bytes + 3) / 4 * 4;
    const uint32_t head[3] = {name_bytes, described, type};
    const int64_t distance = 16;
    memcpy(to, head, sizeof head);
    memset(to + HEAD, 0, padded);
    memcpy(to + HEAD, name, name_bytes);
    memcpy(to + HEAD + padded, &layout, sizeof layout);
    memcpy(to + HEAD + padded + 4, &distance, sizeof distance);
    return HEAD + padded + (described + 3) / 4 * 4;
}

static void expect(int right, const char *what) {
    if (!right) fprintf(stderr, "%s\n", what), exit(1);
}

int main(void) {
    union {
        uint32_t words[WORDS];
        char bytes[4 * WORDS];
    } memory = {{0}};
    char *const at = memory.bytes;
    const size_t bytes = write_note(at, "Nacre", NOTE_TYPE, 12, NACRE_POOL_LAYOUT);
    anchor *const there = (anchor *)(void *)(at + HEAD + 8 + 4 + 16);
    expect(bytes == HEAD + 8 + 12 && read_notes(at, at + bytes, 4) == there, "the note is not found");
    for (size_t end = 0; end < bytes; end++) {
        expect(read_notes(at, at + end, 4) == NULL, "a note without its end is read");
    }

    write_note(at, "Nacre", NOTE_TYPE, 12, NACRE_POOL_LAYOUT + 1);
    expect(read_notes(at, at + bytes, 4) == NULL, "a note of another layout is taken");
    write_note(at, "Nacre", NOTE_TYPE + 1, 12, NACRE_POOL_LAYOUT);
    expect(read_notes(at, at + bytes, 4) == NULL, "a note of another type is taken");
    write_note(at, "Nacra", NOTE_TYPE, 12, NACRE_POOL_LAYOUT);
    expect(read_notes(at, at + bytes, 4) == NULL, "a note of another owner is taken");
    write_note(at, "Nacre", NOTE_TYPE, 16, NACRE_POOL_LAYOUT);
    expect(read_notes(at, at + bytes + 4, 4) == NULL, "a note of another length is taken");

    /* Behind a note of somebody else, whose name has another length. */
    const size_t others = write_note(at, "GNU", 1, 20, 0);
    expect(others == HEAD + 4 + 20, "the first note has another length");
    write_note(at + others, "Nacre", NOTE_TYPE, 12, NACRE_POOL_LAYOUT);
    anchor *const second = (anchor *)(void *)((char *)there + others);
    expect(read_notes(at, at + others + bytes, 4) == second, "a second note is not found");
    expect(read_notes(at, at + others + bytes - 1, 4) == NULL, "a second note without its end is read");

    /* Lengths beyond the segment, and beyond an address. */
    for (uint32_t length = 1; length; length <<= 1) {
        for (int field = 0; field < 2; field++) {
            write_note(at, "Nacre", NOTE_TYPE + 1, 12, NACRE_POOL_LAYOUT);
            memory.words[field] = length | 64;
            expect(read_notes(at, at + bytes, 4) == NULL, "a length beyond the end is followed");
        }
    }
    puts("ok");
    return 0;
}
