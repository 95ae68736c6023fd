"""Faults that are planted in the compiler, so that tests see whether what looks for faults finds them.

`faults.FAULTS` lists them; `planting.plant` switches one on, in this process and in the children that generate code for
it. Nothing is imported here: a child imports the module of its one fault alone.
"""
