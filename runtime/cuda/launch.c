/* The functions that running entries call. After an error of the device, they do nothing until the entry returns. */
#include <limits.h>
#include <string.h>

#include "tiles.h"

static int is_running(const nacre_device_session *session) { return session->status == NACRE_OK; }

/* Copies device memory to host memory, after all earlier kernels. */
void nacre_device_read(nacre_device_session *session, void *target, const void *source, int64_t bytes) {
    int64_t unused;
    if (is_running(session) && nacre_begin_read(session, source, 0, &unused))
        nacre_read_memory(session, target, source, bytes);
}

static int64_t load(nacre_device_session *session, const void *pointer, int bytes, int64_t after_error) {
    int64_t value = after_error;
    if (is_running(session) && nacre_begin_read(session, pointer, bytes, &value) && is_running(session)) {
        value = nacre_read_number(session, pointer, bytes);
        nacre_end_read(session, value);
    }
    return is_running(session) ? value : after_error;
}

/* After an error, the result is a number that ends a loop and passes a check. */
int8_t nacre_device_load_i8(nacre_device_session *session, const void *pointer) {
    return (int8_t)load(session, pointer, 1, 0);
}

int64_t nacre_device_load_i64(nacre_device_session *session, const void *pointer) { return load(session, pointer, 8, -1); }

void nacre_device_store(nacre_device_session *session, int64_t value, void *pointer) {
    const nacre_driver *driver = session->program->driver;
    const driver_pointer target = (driver_pointer)(uintptr_t)pointer;
    /* A graph keeps the values of words, but only the address of a copy from host memory. */
    const uint32_t words[] = {(uint32_t)value, (uint32_t)((uint64_t)value >> 32)};
    driver_stream stream;
    if (!nacre_begin_operation(session, &stream)) return;
    for (int i = 0; i < 2; i++)
        nacre_went_well(session, driver->fill(target + 4 * (driver_pointer)i, words[i], 1, stream), "receive a number");
}

void nacre_device_copy(nacre_device_session *session, void *target, const void *source, int64_t bytes) {
    const nacre_driver *driver = session->program->driver;
    const driver_pointer to = (driver_pointer)(uintptr_t)target, from = (driver_pointer)(uintptr_t)source;
    driver_stream stream;
    if (bytes != 0 && nacre_begin_operation(session, &stream))
        nacre_went_well(session, driver->copy(to, from, (size_t)bytes, stream), "copy a tensor");
}

void *nacre_device_record(nacre_device_session *session) { return (void *)(uintptr_t)session->record; }

/* Returns the number of blocks to launch: of persistent ones, no more than run at once. */
static int64_t limit_blocks(const nacre_program *program, const nacre_kernel_image *image, int64_t blocks) {
    const int64_t most = image->persistent * program->processors;
    return most > 0 && blocks > most ? most : blocks;
}

void nacre_device_launch(nacre_device_session *session, int64_t number, int64_t blocks, void **arguments) {
    const nacre_program *program = session->program;
    const nacre_images *images = nacre_this_device_code.levels[program->level].images;
    if (!is_running(session) || blocks == 0) return;
    const nacre_kernel_image *image = images->kernels[number];
    blocks = limit_blocks(program, image, blocks);
    if (blocks > INT_MAX) {
        session->status = nacre_fail(NACRE_DEVICE_FAILED, "kernel `%s` needs %lld blocks, more than a device has",
                                     image->name, (long long)blocks);
        return;
    }
    /* The driver copies all arguments when it queues or records the launch, so the maps can be on the stack. */
    nacre_tensor_map maps[NACRE_MAPS];
    void *extended[image->arguments + NACRE_MAPS];
    if (image->read) {
        if (!nacre_make_maps(session, image, arguments, maps)) return;
        memcpy(extended, arguments, (size_t)image->arguments * sizeof *arguments);
        for (int i = 0; i < NACRE_MAPS; i++) extended[image->arguments + i] = &maps[i];
        arguments = extended;
    }
    driver_stream stream;
    if (!nacre_begin_operation(session, &stream)) return;
    const int result = program->driver->launch(program->functions[number], (unsigned)blocks, 1, 1,
                                               (unsigned)image->threads, 1, 1, (unsigned)image->shared, stream, arguments, NULL);
    if (result == 0) return;
    const char *text = NULL;
    program->driver->describe_error(result, &text);
    session->status = nacre_fail(NACRE_DEVICE_FAILED, "the device could not launch `%s` with %lld blocks: %s (CUDA error %d)",
                                 image->name, (long long)blocks, text ? text : "unknown", result);
}
