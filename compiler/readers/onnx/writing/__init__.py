"""The tools of converters: records of the file, and the use of an operator."""
