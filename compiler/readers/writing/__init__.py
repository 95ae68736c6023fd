"""The writer of the graph that readers share, tensors that are partly known, and the evaluation of known ones."""
