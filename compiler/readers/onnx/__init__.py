"""The reader of ONNX files: protobufs to the graph IR, with symbolic dims and shape arithmetic resolved while reading.

`proto` decodes the file to records, `onnx_model` walks the nodes, `convert` holds one converter for each operator, and
`graph_writer` writes nodes and evaluates known values. The package `onnx`, an optional dependency, parses protobufs.
"""
