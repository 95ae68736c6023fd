"""Structured ops as both code generators read them, on tensors or on memory: the half that no target is part of.

    linalg.generic {indexing_maps = [(d0, d1) -> (d0, d1), (d0, d1) -> (d0)],
                    iterator_types = ["parallel", "reduction"]} ins(%x) outs(%total) { addf }

`tiler` reads such an op on tensors, before memory is assigned, and writes vector code; `gpu` reads it on memory, and
writes the functions of a device's threads. Neither imports the other. Both find the same facts here, and add what their
schedules need in layers of their own:

    operations.py     the operands, loops, index maps and body of an op
    positions.py      the index of a tensor along an axis, in terms of the loops
    values.py         constants, views of memory, and sizes that are known in part
    body_nodes.py     the body as expressions, and what is asked of them: sums, products, positions, comparisons
"""
