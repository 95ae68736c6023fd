/* The code and the weights of the artifact on one device. All sessions on the device share them. */
#ifndef NACRE_CUDA_PROGRAM_H
#define NACRE_CUDA_PROGRAM_H

#include "driver.h"

typedef struct nacre_program {
    const nacre_driver *driver;
    int device, processors; /* the number of its multiprocessors */
    int32_t level; /* index of the selected architecture in the artifact's device levels */
    int runs_cubins; /* whether the device runs the machine code of that architecture */
    driver_context context;
    driver_module *modules; /* one for each kernel; NULL if the kernel is in the module of another one */
    driver_function *functions;
    driver_pointer weights;
    int references;
} nacre_program;

/* Stores the program of a device, and creates it at the first call. Its context is not current afterwards. */
nacre_status nacre_take_program(int number, nacre_program **program);
void nacre_leave_program(nacre_program *program);

/* Copies weights to the device, once: all weights files of an artifact have the same content. */
nacre_status nacre_load_weights(nacre_program *program, const char *weights);

/* `nacre_enter` makes the context of a program current for the thread, `nacre_exit` the previous one. */
nacre_status nacre_enter(const nacre_program *program);
void nacre_exit(const nacre_program *program);

#endif
