"""The tools of converters: a layer as its converter sees it."""
