"""runtime/ABI.md covers the functions and dtypes of abi.h; its example compiles, and its links are correct."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

RUNTIME = Path(__file__).parents[2] / "runtime"
PAGE = (RUNTIME / "ABI.md").read_text(encoding="utf-8")
HEADER = (RUNTIME / "abi.h").read_text(encoding="utf-8")


def test_every_function_has_a_row() -> None:
    table = HEADER.split("typedef struct nacre_api {")[1].split("} nacre_api;")[0]
    declared = re.findall(r"\(\*(\w+)\)\(", table)
    assert len(declared) > 10
    assert re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE) == declared


def test_dtype_numbers_are_those_of_the_header() -> None:
    declared = {name.lower(): int(number) for name, number in re.findall(r"NACRE_([A-Z]+\w*) = (\d+)", HEADER)}
    table = PAGE.split("## Dtype numbers")[1].split("## ")[0]
    listed = {name: int(number) for name, number in re.findall(r"`(\w+)` \| (\d+)", table)}
    assert len(listed) == 15
    assert listed == {name: declared[name] for name in listed}


def test_every_error_is_mentioned() -> None:
    names = set(re.findall(r"NACRE_([A-Z_]+) = \d+,? +/\*", HEADER)) - {"BOOL"}
    assert {"INVALID", "BUSY"} <= names
    assert all(re.search(rf"\b{name}\b", PAGE) for name in names)


def test_example_compiles(tmp_path: Path) -> None:
    example = re.findall(r"^```c\n(.*?)^```$", PAGE.split("## Calling a model")[1], re.MULTILINE | re.DOTALL)[0]
    program = '#include <stdio.h>\n#include <stdlib.h>\n#include "abi.h"\n'
    program += f"void example(const nacre_tensor *inputs, const nacre_tensor *outputs) {{\n{example}}}\n"
    (tmp_path / "example.c").write_text(program)
    command = ["cc", "-std=c11", "-Wall", "-Werror", "-fsyntax-only", "-I", str(RUNTIME), str(tmp_path / "example.c")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_links_to_sections_lead_somewhere() -> None:
    anchors = {title.lower().replace(" ", "-") for title in re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)}
    targets = re.findall(r"\]\(#([\w-]+)\)", PAGE)
    assert targets and set(targets) <= anchors
