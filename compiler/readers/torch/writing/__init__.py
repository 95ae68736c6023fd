"""The tools of converters: dtypes and arrays of PyTorch, and one node as its converter sees it."""
