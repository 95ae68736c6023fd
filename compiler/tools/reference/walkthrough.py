"""Fills in the outputs on the page that follows a model through a build:
`python -m nacre.compiler.tools.reference.walkthrough`.

The page is `compiler/docs/walkthrough.md`. It contains the model, and a comment `<!-- stage: NAME -->` before each
output. Functions of `_EXCERPTS` select the shown part of a stage; a test compares the page with the result of
`format_page`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from ....dialect.parser import parse_module
from ....dialect.printer import print_module
from ...base.spans import without_spans
from ...dumps import Dumps
from ...options import Options
from ...pipeline import Build
from ...readers.table import read_file
from ...targets.target import parse_targets

PAGE = Path(__file__).parents[2] / "docs" / "walkthrough.md"
TARGET = "x86-64-v3"


def _graph(text: str) -> str:
    return print_module(without_spans(parse_module(text)))


def _linalg(text: str) -> str:
    """Returns the structured ops of the kernel: from the first one to the last line of the last one."""
    body = text[text.index(" = linalg.") : text.index("bufferization.materialize")]
    first = text[: text.index(" = linalg.")].rsplit("\n", 1)[1]
    ops = (first + re.sub(r" loc\(.*?\)", "", body)).rstrip()
    # The head of a `linalg.generic` is one long line.
    ops = re.sub(
        r"(?<=linalg\.generic) |(?<=,) (?=affine_map|iterator)|(?<=}) (?=ins)|(?<=\)) (?=outs)", "\n      ", ops
    )
    return "\n".join(line.removeprefix("  ") for line in ops.splitlines())


def _tiled(text: str) -> str:
    """Returns the loop of the tile of one row, without computations of addresses and prefetches."""
    begin = re.compile(r"%\S+ = scf\.for ").search(text, text.index("case 1 {"))
    assert begin is not None
    loop = text[begin.start() :]
    end = re.search(r"^ *scf.yield.*\n *}\n", loop, re.MULTILINE)
    assert end is not None
    kept = [line for line in loop[: end.end()].splitlines() if not re.search(r"= arith\.|memref\.prefetch", line)]
    return "\n".join([kept[0], *(line.removeprefix(" " * 8) for line in kept[1:])])


def _assembly(text: str) -> str:
    """Returns the loop with the first multiplication: from the label before to the jump after it."""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if "vfmadd" in line)
    begin = next(i for i in range(at, 0, -1) if lines[i].endswith(":"))
    end = next(i for i in range(at, len(lines)) if re.match(r"\tj\w+\t", lines[i]))
    return "\n".join(line.expandtabs(8) for line in lines[begin : end + 1])


_EXCERPTS: Mapping[str, Callable[[str], str]] = {
    "graph": _graph,
    "fuse": _graph,
    "linalg": _linalg,
    "tiled": _tiled,
    "assembly": _assembly,
}


def dump_stages(source: str) -> Mapping[str, str]:
    """Returns the text of each shown stage of a build."""
    dumps = Dumps(keep=tuple(_EXCERPTS))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "layer.nacre"
        path.write_text(source, encoding="utf-8")
        build = Build(read_file(path), Options(targets=parse_targets(TARGET)), dumps)
        build.generate_entries(build.generate(build.lower(build.optimize())))
    return dumps.texts


def format_page(page: str) -> str:
    """Returns the page with its outputs replaced."""
    model = re.search(r"^```nacre\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert model is not None
    texts = dump_stages(model[1])

    def fill(match: re.Match[str]) -> str:
        return f"{match[1]}```\n{_EXCERPTS[match[2]](texts[match[2]]).rstrip()}\n```\n"

    return re.sub(r"(<!-- stage: (\S+) -->\n)```\n.*?^```\n", fill, page, flags=re.MULTILINE | re.DOTALL)


def main() -> None:
    PAGE.write_text(format_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
