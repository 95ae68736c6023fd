"""Generates machine code: linalg to vector code, LLVM IR and objects, in child processes."""
