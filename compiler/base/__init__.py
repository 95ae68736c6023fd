"""The lowest layer of the compiler: files, spans, caches on disk, sessions, internal errors, the import of MLIR."""
