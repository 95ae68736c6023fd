"""Writes threaded code to files that `program.c` loads, and compiles the functions of its forms.

    FOLDER/0a1b....program    words of kernels, with the forms, constants and texts that some of them become
    FOLDER/forms-2c3d....so   the functions of forms that no earlier program of the folder has
    FOLDER/forms-2c3d....txt  their names

A program is made once in a folder, and a form once in each process at most: several may compile the same one at a time.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ptx_operands import DATA, LABEL, TEXT, Row
from translate_ptx import Program

_MASK = (1 << 64) - 1
_FORM, _CONSTANT, _TEXT = range(3)
"""The kinds of words that become addresses, as `program.c` numbers them."""
_known: dict[str, Path] = {}
"""The libraries of forms, by the names of their functions."""
_seen: set[Path] = set()
"""The lists of names that were read."""


def write_program(program: Program, folder: Path, compile: Callable[[Path, str], None]) -> bytes:
    """Returns the file of a program. `compile` makes a library of a source in C."""
    rows = [(form, 1 + len(operands)) for kernel in program.kernels for form, operands in kernel.rows]
    forms = {_name_form(*row): row for row in rows}
    _compile_forms(forms, folder, compile)
    return _Encoder({name: _known[name] for name in forms}).encode(program)


@cache
def _name_form(form: str, length: int) -> str:
    return f"form_{hashlib.sha256(f'{length} {form}'.encode()).hexdigest()[:16]}"


def _compile_forms(forms: Mapping[str, tuple[str, int]], folder: Path, compile: Callable[[Path, str], None]) -> None:
    if not forms.keys() <= _known.keys():
        for names in set(folder.glob("forms-*.txt")) - _seen:
            _seen.add(names)
            _known.update(dict.fromkeys(names.read_text().split(), names.with_suffix(".so")))
    missing = {name: form for name, form in forms.items() if name not in _known}
    if not missing:
        return
    library = folder / f"forms-{hashlib.sha256(' '.join(missing).encode()).hexdigest()[:24]}.so"
    functions = (_write_function(name, *form) for name, form in missing.items())
    compile(library, "\n".join(['#include "machine.h"', *functions]))
    library.with_suffix(".txt").write_text("\n".join(missing))
    _known.update(dict.fromkeys(missing, library))


def _write_function(name: str, form: str, length: int) -> str:
    head = f"const int64_t *{name}(const int64_t *o, uint8_t *R, mail *M, block *B) {{"
    return f"{head} enum {{ LENGTH = {length} }}; {form} return o + LENGTH; }}"


@dataclass
class _Encoder:
    libraries: Mapping[str, Path]
    words: array[int] = field(default_factory=lambda: array("Q"))
    fixes: array[int] = field(default_factory=lambda: array("Q"))
    texts: bytearray = field(default_factory=bytearray)
    _places: dict[str, int] = field(default_factory=dict)

    def encode(self, program: Program) -> bytes:
        paths = list(dict.fromkeys(self.libraries.values()))
        numbers = {name: number for number, name in enumerate(self.libraries)}
        constants = [(self._add(data), len(data), align) for align, data in program.data]
        kernels = []
        for kernel in program.kernels:
            code = len(self.words)
            self._write_rows(kernel.rows, kernel.labels, numbers)
            sizes = len(self.words)
            self.words.extend([*(size for _, size in kernel.parameters.values()), 0])
            memory = -(-kernel.bytes // 16) * 16
            kernels.append((self._text(kernel.name), code, sizes, memory, kernel.shared_bytes))
        libraries = [(self._text(str(path)),) for path in paths]
        forms = [(paths.index(path), self._text(name)) for name, path in self.libraries.items()]
        tables: list[Iterable[tuple[int, ...]]] = [libraries, forms, constants, kernels]
        counts = (*(len(list(table)) for table in tables), len(self.words), len(self.fixes) // 3, len(self.texts))
        head = array("Q", [*counts, *(number for table in tables for row in table for number in row)])
        return b"".join([head.tobytes(), self.words.tobytes(), self.fixes.tobytes(), self.texts])

    def _write_rows(self, rows: list[Row], labels: Mapping[str, int], forms: Mapping[str, int]) -> None:
        begins = [len(self.words)]
        for _, operands in rows:
            begins.append(begins[-1] + 1 + len(operands))
        for begin, (form, operands) in zip(begins, rows, strict=False):
            self._fix(_FORM, forms[_name_form(form, 1 + len(operands))])
            for kind, value in operands:
                if kind == TEXT:
                    self._fix(_TEXT, self._text(str(value)))
                elif kind == DATA:
                    self._fix(_CONSTANT, int(value))
                elif kind == LABEL:
                    self.words.append(begins[labels[str(value)]] - begin & _MASK)
                else:
                    self.words.append(int(value) & _MASK)

    def _fix(self, kind: int, value: int) -> None:
        self.fixes.extend((len(self.words), kind, value))
        self.words.append(0)

    def _text(self, text: str) -> int:
        if text not in self._places:
            self._places[text] = self._add(text.encode() + b"\0")
        return self._places[text]

    def _add(self, data: bytes) -> int:
        self.texts += data
        return len(self.texts) - len(data)
