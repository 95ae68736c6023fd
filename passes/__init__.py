"""Graph to graph: the passes, each in the file of its name, and the manager that runs a list of them.

`registry` lists them all; `manager` runs, verifies, times and counts; `pass_list` reads and writes lists of them.
"""
