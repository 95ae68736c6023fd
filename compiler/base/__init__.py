"""Ground floor of the compiler: files, spans, caches on disk, reports of internal errors, the seam to MLIR."""
