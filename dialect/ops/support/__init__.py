"""Helpers that families of operators share; no operator is defined here."""
