"""How far the numbers of a model are from those of a reference, over all samples of a file."""
