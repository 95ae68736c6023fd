"""Kernels for GPUs: structured ops on memory to device functions, and device functions to PTX."""
