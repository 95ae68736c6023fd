"""The tools of converters: records of the file, tensors that are partly known, and the writer of the graph."""
