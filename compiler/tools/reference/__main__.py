"""Writes all generated pages of `compiler/docs`: `python -m nacre.compiler.tools.reference`."""

from __future__ import annotations

from .architecture import main as write_architecture
from .onnx_operators import main as write_onnx_operators
from .operators import main as write_operators
from .passes import main as write_passes
from .python_api import main as write_python_api
from .walkthrough import main as write_walkthrough

if __name__ == "__main__":
    write_architecture()
    write_onnx_operators()
    write_operators()
    write_passes()
    write_python_api()
    write_walkthrough()
