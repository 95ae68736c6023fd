"""The reader of TFLite files: flatbuffers to the graph IR, with the integer arithmetic of the reference kernels."""
