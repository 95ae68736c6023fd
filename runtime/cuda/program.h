/* The code and the weights of the artifact on one device, which all its sessions there share. */
#ifndef NACRE_CUDA_PROGRAM_H
#define NACRE_CUDA_PROGRAM_H

#include "driver.h"

typedef struct nacre_program {
    const nacre_driver *driver;
    int device;
    int32_t level; /* of the artifact's code */
    driver_context context;
    driver_module *modules; /* one for each kernel, NULL where it is in the module of another one */
    driver_function *functions;
    driver_pointer weights;
    int references;
} nacre_program;

/* Returns the program for a device by its number, made at the first call. Afterwards its context is not current. */
nacre_status nacre_take_program(int number, nacre_program **program);
void nacre_leave_program(nacre_program *program);

/* Copies weights to the device, unless they are there: all files of an artifact have the same. */
nacre_status nacre_load_weights(nacre_program *program, const char *weights);

/* Makes the context of a program current for the thread, and takes it away again. */
nacre_status nacre_enter(const nacre_program *program);
void nacre_exit(const nacre_program *program);

#endif
