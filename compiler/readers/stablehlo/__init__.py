"""The reader of StableHLO: text or bytecode of MLIR to the graph IR; JAX functions come through it.

A child process parses a file with the bindings of MLIR (`parsing_child`), `records` holds its operations, `walk` visits
them, and `convert` holds one converter for each operation.
"""
