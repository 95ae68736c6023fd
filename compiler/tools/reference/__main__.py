"""Writes all generated pages, and the grammar for editors: `python -m nacre.compiler.tools.reference`."""

from __future__ import annotations

from .architecture import main as write_architecture
from .cpu_variants import main as write_cpu_variants
from .operators import main as write_operators
from .passes import main as write_passes
from .python_api import main as write_python_api
from .reader_operators import main as write_reader_operators
from .textmate import main as write_textmate
from .walkthrough import main as write_walkthrough

if __name__ == "__main__":
    write_architecture()
    write_cpu_variants()
    write_reader_operators()
    write_operators()
    write_passes()
    write_python_api()
    write_textmate()
    write_walkthrough()
