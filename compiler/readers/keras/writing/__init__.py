"""The tools of converters: the interface of a layer to its converter."""
