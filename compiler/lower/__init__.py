"""Lowers graphs to MLIR linalg: one kernel for each fused group, and the calls of the kernels."""
