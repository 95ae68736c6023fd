"""The tiler: reads structured ops by their index maps and bodies, and emits register-tiled vector code.

It depends on no operators of the graph, and on instructions through `codegen/isa` alone. A kernel passes through these
files:

    read.py, structure.py     ops: loops, index maps, bodies, and the memory of tensors
    schedule.py               stages and classes of loops
    kernels.py                the choice of a schedule for each stage
    tiles.py, rows.py, ...    the schedules, each a nest of loops
    evaluate.py               the value of an op in an iteration of the nest: reads, body, stores
    text.py                   MLIR text in the dialects vector, scf and arith

Terms:

    class        loops of several ops that run together, since one op reads the result of another at the same index
    stage        ops that are written as one nest of loops
    iteration    the index of each class
    work item    a part of the outermost loops of a stage that a thread computes; any thread may compute any of them
    lane         an element of a vector register; one class of a stage runs over lanes
    panel        columns of an operand that are adjacent in memory and as wide as a tile, or a few tiles
    tile         a block of sums in vector registers, with rows and columns
"""
