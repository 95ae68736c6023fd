"""The reader of StableHLO: text or bytecode of MLIR to the graph IR. JAX functions are exported to StableHLO first.

A child process parses a file with the bindings of MLIR (`parsing_child`), `records` holds its operations,
`stablehlo_model` visits them, and `convert` holds one converter for each operation.
"""
