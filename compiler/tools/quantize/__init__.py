"""The search of `nacre quantize` for the precision of each layer."""
