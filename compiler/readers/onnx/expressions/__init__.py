"""Regular expressions as automata: patterns of operators on strings to tables of states."""
