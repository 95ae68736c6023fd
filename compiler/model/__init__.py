"""Records that every reader gives and every later stage takes."""
