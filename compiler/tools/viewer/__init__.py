"""`nacre graph`: draws a model as nested blocks, as a page, an SVG or DOT text."""
