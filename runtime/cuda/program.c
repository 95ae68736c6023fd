/* Loads the kernels and the weights of the artifact into a device. */
#include "program.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DEVICES 64
enum { PROCESSORS = 16, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76, ERROR_LOG = 5, ERROR_LOG_BYTES = 6, MOST_DYNAMIC_SHARED = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static nacre_program *programs[MOST_DEVICES];

nacre_status nacre_enter(const nacre_program *program) {
    const int result = program->driver->push_context(program->context);
    return result ? nacre_driver_failed(program->driver, result, "activate its context") : NACRE_OK;
}

void nacre_exit(const nacre_program *program) {
    driver_context context;
    program->driver->pop_context(&context);
}

/* Machine code runs on devices with its major compute capability, and the same or a later minor one. Those of Tegra are
 * apart: they run their own code alone. */
static int runs_cubin_of(int own, int capability) {
    const int is_tegra = own == 87 || own == 88 || capability == 87 || capability == 88;
    return own == capability || (own / 10 == capability / 10 && own > capability && !is_tegra);
}

/* Determines whether the device and the driver run the machine code of a level. A driver runs that of its own major
 * version of CUDA and of earlier ones. */
static nacre_status choose_form(nacre_program *program, const nacre_device_level *level, int own) {
    int version = 0;
    const int result = program->driver->get_version(&version);
    if (result) return nacre_driver_failed(program->driver, result, "report the version of its driver");
    const int is_read = level->release > 0 && level->release <= version / 1000;
    program->runs_cubins = is_read && runs_cubin_of(own, level->capability);
    return NACRE_OK;
}

/* Selects the code for the device: the first level that it can run. */
static nacre_status choose_level(nacre_program *program) {
    const nacre_driver *driver = program->driver;
    const nacre_device_code *code = &nacre_this_device_code;
    int major = 0, minor = 0;
    int result = driver->get_attribute(&major, CAPABILITY_MAJOR, program->device);
    if (!result) result = driver->get_attribute(&minor, CAPABILITY_MINOR, program->device);
    if (!result) result = driver->get_attribute(&program->processors, PROCESSORS, program->device);
    if (result) return nacre_driver_failed(driver, result, "report its architecture");
    const int own = major * 10 + minor;
    for (int32_t i = 0; i < code->level_count; i++) {
        const nacre_device_level *level = &code->levels[i];
        program->level = i;
        const int fits = level->exact ? level->capability == own : level->capability <= own;
        if (fits) return choose_form(program, level, own);
    }
    const nacre_device_level *least = &code->levels[code->level_count - 1];
    return nacre_fail(NACRE_NO_DEVICE, "the artifact is for %s%s, and the device is sm_%d", least->name,
                      least->exact ? "" : " or newer", own);
}

static nacre_status load_module(const nacre_program *program, const nacre_kernel_image *image, driver_module *module) {
    char log[768] = "";
    int options[] = {ERROR_LOG, ERROR_LOG_BYTES};
    void *values[] = {log, (void *)(uintptr_t)(sizeof log - 1)};
    const nacre_driver *driver = program->driver;
    int is_cubin = program->runs_cubins && image->cubin != NULL;
    int result = driver->load_module(module, is_cubin ? image->cubin : image->ptx, 2, options, values);
    if (is_cubin && result == DRIVER_NO_BINARY) {
        /* The device does not run this code after all; the driver compiles the PTX for it. */
        is_cubin = 0;
        result = driver->load_module(module, image->ptx, 2, options, values);
    }
    if (result == 0) return NACRE_OK;
    *module = NULL;
    const char *text = NULL;
    driver->describe_error(result, &text);
    const nacre_status status = result == DRIVER_OUT_OF_MEMORY ? NACRE_OUT_OF_MEMORY : NACRE_DEVICE_FAILED;
    return nacre_fail(status, "the driver could not %s `%s`: %s%s%s", is_cubin ? "load the machine code of" : "compile",
                      image->name, text ? text : "unknown", *log ? "\n" : "", log);
}

static nacre_status load_kernels(nacre_program *program) {
    const nacre_images *images = nacre_this_device_code.levels[program->level].images;
    const size_t count = (size_t)images->count;
    program->modules = calloc(count + 1, sizeof *program->modules);
    program->functions = calloc(count + 1, sizeof *program->functions);
    if (program->modules == NULL || program->functions == NULL)
        return nacre_fail(NACRE_OUT_OF_MEMORY, "no memory for %zu kernels", count);
    for (size_t i = 0; i < count; i++) {
        const nacre_kernel_image *image = images->kernels[i];
        driver_module module = NULL;
        for (size_t j = 0; j < i && module == NULL; j++)
            if (images->kernels[j]->ptx == image->ptx) module = program->modules[j];
        if (module == NULL) {
            nacre_status status = load_module(program, image, &program->modules[i]);
            if (status) return status;
            module = program->modules[i];
        }
        int result = program->driver->get_function(&program->functions[i], module, image->name);
        if (result) return nacre_driver_failed(program->driver, result, "find a kernel");
        if (image->shared) {
            result = program->driver->set_function(program->functions[i], MOST_DYNAMIC_SHARED, (int)image->shared);
            if (result) return nacre_driver_failed(program->driver, result, "allocate shared memory for a kernel");
        }
    }
    return NACRE_OK;
}

static nacre_status load_weights(nacre_program *program, const char *weights) {
    const nacre_driver *driver = program->driver;
    const size_t bytes = (size_t)nacre_this_device_code.weight_bytes;
    if (bytes == 0 || weights == NULL || program->weights) return NACRE_OK;
    int result = driver->allocate(&program->weights, bytes);
    if (result) {
        program->weights = 0;
        return nacre_driver_failed(driver, result, "allocate memory for the weights");
    }
    result = driver->to_device(program->weights, weights, bytes, NULL);
    if (!result) result = driver->synchronize(NULL);
    if (result == 0) return NACRE_OK;
    driver->release(program->weights);
    program->weights = 0;
    return nacre_driver_failed(driver, result, "receive the weights");
}

nacre_status nacre_load_weights(nacre_program *program, const char *weights) {
    pthread_mutex_lock(&lock);
    nacre_status status = nacre_enter(program);
    if (!status) {
        status = load_weights(program, weights);
        nacre_exit(program);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static void unload(nacre_program *program) {
    const nacre_driver *driver = program->driver;
    if (program->context != NULL && driver->push_context(program->context) == 0) {
        const int64_t count = nacre_this_device_code.levels[program->level].images->count;
        if (program->weights) driver->release(program->weights);
        for (int64_t i = 0; program->modules && i < count; i++)
            if (program->modules[i]) driver->unload_module(program->modules[i]);
        nacre_exit(program);
    }
    if (program->context != NULL) driver->release_context(program->device);
    free(program->modules);
    free(program->functions);
    free(program);
}

static nacre_status load(nacre_program *program, int number) {
    const nacre_driver *driver = program->driver;
    int result = driver->get_device(&program->device, number);
    if (result) return nacre_driver_failed(driver, result, "be found");
    nacre_status status = choose_level(program);
    if (status) return status;
    result = driver->retain_context(&program->context, program->device);
    if (result) {
        program->context = NULL;
        return nacre_driver_failed(driver, result, "start");
    }
    status = nacre_enter(program);
    if (status) return status;
    status = load_kernels(program);
    if (!status) status = load_weights(program, nacre_this_device_code.weights);
    nacre_exit(program);
    return status;
}

nacre_status nacre_take_program(int number, nacre_program **result) {
    const char *why;
    if (nacre_is_forked())
        return nacre_fail(NACRE_DEVICE_FAILED, "the CUDA driver was started before this process was forked, so it does not work here: "
                                               "use devices only in processes that are spawned");
    const nacre_driver *driver = nacre_open_driver(&why);
    if (driver == NULL) return nacre_fail(NACRE_NO_DEVICE, "%s", why);
    int count = 0;
    const int failure = driver->count_devices(&count);
    if (failure) return nacre_driver_failed(driver, failure, "be counted");
    if (number < 0 || number >= count || number >= MOST_DEVICES)
        return nacre_fail(NACRE_NO_DEVICE, "there is no device `cuda:%d`; the driver has %d", number, count);
    pthread_mutex_lock(&lock);
    nacre_status status = NACRE_OK;
    nacre_program *program = programs[number];
    if (program == NULL) {
        program = calloc(1, sizeof *program);
        if (program == NULL) {
            status = nacre_fail(NACRE_OUT_OF_MEMORY, "no memory for a device");
        } else {
            program->driver = driver;
            status = load(program, number);
            if (status) unload(program);
        }
    }
    if (!status) {
        program->references++;
        programs[number] = *result = program;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void nacre_leave_program(nacre_program *program) {
    pthread_mutex_lock(&lock);
    if (--program->references == 0) {
        for (int i = 0; i < MOST_DEVICES; i++)
            if (programs[i] == program) programs[i] = NULL;
        unload(program);
    }
    pthread_mutex_unlock(&lock);
}
