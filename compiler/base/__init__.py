"""The lowest layer of the compiler: files, spans, caches on disk, reports of internal errors, the import of MLIR."""
