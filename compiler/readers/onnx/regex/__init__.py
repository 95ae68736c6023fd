"""Regular expressions of RE2: their syntax, their trees, and automata over the bytes of UTF-8."""
