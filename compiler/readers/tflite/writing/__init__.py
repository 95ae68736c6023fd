"""The tools of converters: records of a file, one operator as its converter sees it, and fixed-point arithmetic."""
