"""The reader of PyTorch programs: the nodes of `torch.export` to the graph IR, with symbolic dims and weights by name.

`program` describes the arguments and results of a program, `sizes` reads its symbolic sizes, `walk` visits its nodes,
and `convert` holds one converter for each ATen operator. The package `torch`, an optional dependency, is imported when
a program is read.
"""
