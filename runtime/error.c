/* The text of a thread's last failure. */
#include <stdarg.h>
#include <stdio.h>

#include "internal.h"

static _Thread_local char message[1024];

nacre_status nacre_fail(nacre_status status, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    return status;
}

const char *nacre_last_error(void) { return message; }
