"""The shared library: tables, packed weights, the C runtime, and the linker."""
