"""The tools of converters: records of operations, and the interface of an operation to its converter."""
