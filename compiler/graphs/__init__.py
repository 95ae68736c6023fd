"""Graphs in the hands of people: read, asked, counted, changed, run, saved. The public face of it is `nacre.graph`."""
