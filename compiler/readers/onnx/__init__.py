"""The reader of ONNX files: protobufs to the graph IR, with symbolic dims and shape arithmetic resolved while reading.

`proto` decodes the file to records, `onnx_model` visits the nodes, and `convert` holds one converter for each operator.
`readers/writing` writes nodes of the graph and evaluates known values. The package `onnx`, an optional dependency,
parses protobufs.
"""
