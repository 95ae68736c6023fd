"""`nacre accuracy`: the error of a model against a reference, over all samples of a file."""
