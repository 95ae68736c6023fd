"""The tools of converters: records of operations, and one operation as its converter sees it."""
