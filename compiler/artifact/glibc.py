"""Stubs of the C library with the symbols of glibc 2.17, against which artifacts are linked.

The linker binds a symbol to its newest version in the library that it finds, so that an artifact would need the glibc
of the machine that linked it. The stubs are empty shared libraries with the names of glibc's and the functions of 2.17
at their versions of that time; each later glibc still offers these. A stub replaces the system's library, so a function
that it lacks does not link: the lists contain the functions that the runtime, kernels, and compilers by themselves
(checked variants of functions, `bcmp` for `memcmp`) may call.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

BASE_VERSIONS: Mapping[str, str] = {"x86_64": "2.2.5", "aarch64": "2.17"}
"""The first version of glibc for a machine, which most symbols have. riscv64 has had glibc since 2.27 only."""
OLDEST = "2.17"

_LIBC = """
__cxa_finalize __errno_location abort bcmp calloc close dl_iterate_phdr free getenv getpid madvise malloc memcmp
memmove memset mmap mprotect munmap nanosleep open pthread_attr_destroy pthread_attr_init pthread_mutex_destroy
pthread_mutex_init pthread_mutex_lock pthread_mutex_unlock pthread_self qsort read sched_yield sigfillset snprintf
stpcpy strcat strchr strcmp strcpy strerror strlen strncat strncmp strncpy strnlen strrchr strtoll syscall sysconf
usleep vsnprintf
__memcpy_chk@2.3.4 __memmove_chk@2.3.4 __memset_chk@2.3.4 __open_2@2.7 __read_chk@2.4 __register_atfork@2.3.2
__sched_cpualloc@2.7 __sched_cpucount@2.6 __sched_cpufree@2.7 __snprintf_chk@2.3.4 __stack_chk_fail@2.4
__stpcpy_chk@2.3.4 __strcat_chk@2.3.4 __strcpy_chk@2.3.4 __strncat_chk@2.3.4 __strncpy_chk@2.3.4 __vsnprintf_chk@2.3.4
__getauxval@2.16 aligned_alloc@2.16 clock_gettime@2.17 memcpy@2.14 sched_getaffinity@2.3.4 sched_getcpu@2.6
"""
_LIBDL = "dlerror dlopen dlsym"
"""The functions that open the driver of a device."""
_LIBPTHREAD = """
pthread_attr_setstacksize pthread_create pthread_join pthread_mutex_trylock pthread_sigmask
pthread_setaffinity_np@2.3.4 pthread_setname_np@2.12
"""
_LIBM = """
acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs floor fma fmax fmin fmod
ldexp log log10 log1p log2 nearbyint pow rint round sin sincos sinh sqrt tan tanh trunc
roundeven@2.25
"""
"""The functions of f64; those of f32 are named likewise, with an `f`. Only CPUs without SSE4.1 call `roundeven`."""


@cache
def stub_sources(machine: str) -> Mapping[str, tuple[str, str]]:
    """Returns for the file name of each library a C source, and the version script for linking it."""
    base = BASE_VERSIONS[machine]
    libraries = {
        "libc.so.6": _LIBC.split(),
        "libpthread.so.0": _LIBPTHREAD.split(),
        "libdl.so.2": _LIBDL.split(),
        "libm.so.6": [_of_float(text, suffix) for text in _LIBM.split() for suffix in ("", "f")],
    }
    return {library: _source([_versioned(text, base) for text in texts]) for library, texts in libraries.items()}


def _of_float(text: str, suffix: str) -> str:
    name, at, version = text.partition("@")
    return f"{name}{suffix}{at}{version}"


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _versioned(text: str, base: str) -> tuple[str, str]:
    name, _, version = text.partition("@")
    return name, max(version or base, base, key=_number)


def _source(symbols: list[tuple[str, str]]) -> tuple[str, str]:
    # Defined in assembly, since a C compiler knows the types of these functions.
    code = [f'__asm__(".globl {name}\\n.type {name}, %function\\n{name}:\\n");' for name, _ in symbols]
    script = []
    for version in sorted({version for _, version in symbols}, key=_number):
        names = " ".join(f"{name};" for name, own in symbols if own == version)
        script.append(f"GLIBC_{version} {{ global: {names} }};")
    return "\n".join(['__asm__(".text\\n");', *code, ""]), "\n".join([*script, ""])
