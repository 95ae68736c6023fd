"""The tools of converters: records of a file, the interface of an operator to its converter, and fixed-point
arithmetic."""
