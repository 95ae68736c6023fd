"""Analyses that passes and the compiler share; no graph is changed here."""
