"""Targets: the CPUs that code is generated for, and their vector units."""
