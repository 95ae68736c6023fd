"""LLVM through llvmlite, and the fix-ups of LLVM IR that the pinned versions need."""
