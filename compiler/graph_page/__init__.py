"""A model as a picture: graph -> nested blocks -> a layout of each -> a page, an SVG or DOT text."""
