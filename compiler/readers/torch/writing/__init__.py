"""The tools of converters: dtypes and arrays of PyTorch, and the interface of a node to its converter."""
