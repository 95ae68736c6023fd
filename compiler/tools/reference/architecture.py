"""Writes the table and the picture of folders in `compiler/docs/architecture.md` from the imports of the code:
`python -m nacre.compiler.tools.reference.architecture`.

A folder imports only folders of lower levels. The level of a folder is 1 more than the highest level that it imports.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from .generated_part import replace_generated

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "compiler" / "docs" / "architecture.md"

Imports = Mapping[str, Mapping[str, str]]
"""For each folder, the folders that it imports, with the file and line of one import each."""


def folder_of(name: str) -> str | None:
    """Returns the folder of an absolute name in the package `nacre`; a file for modules directly in a package."""
    path = ROOT.joinpath(*name.split(".")[1:])
    for target in (path, path.parent):
        if target.with_suffix(".py").is_file():
            return _folder(target.with_suffix(".py").relative_to(ROOT))
        if (target / "__init__.py").is_file():
            return str(target.relative_to(ROOT))
    return None


def _folder(path: Path) -> str:
    return str(path if len(path.parts) == 2 else path.parent)


def statements(source: str) -> Iterator[ast.AST]:
    """Yields the statements of a source, also nested ones. They are a tenth of its nodes."""
    pending: list[ast.AST] = [ast.parse(source)]
    while pending:
        node = pending.pop()
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            pending.extend(getattr(node, name, ()))


def imported_names(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the line and the absolute name of each import in a file, whose path is relative to the root."""
    package = ["nacre", *path.parts[:-1]]
    for node in statements((ROOT / path).read_text(encoding="utf-8")):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            full = [*base, *(node.module.split(".") if node.module else [])]
            yield from ((node.lineno, ".".join([*full, alias.name])) for alias in node.names)


def folder_imports(package: str = "compiler") -> Imports:
    """Returns the imports between the folders in a package, without `compiler/nacre`, which exports public names."""
    return _folder_imports(package)


@cache
def _folder_imports(package: str) -> Imports:
    found: dict[str, dict[str, str]] = {}
    for path in sorted(p.relative_to(ROOT) for p in (ROOT / package).rglob("*.py")):
        if path.parts[:2] == ("compiler", "nacre") or path.name == "__init__.py":
            continue
        own = found.setdefault(_folder(path), {})
        for line, name in imported_names(path):
            other = folder_of(name) if name.startswith(f"nacre.{package}.") else None
            if other is not None and other != _folder(path):
                own.setdefault(other, f"{path}:{line}")
    return found


def levels(imports: Imports) -> dict[str, int]:
    """Returns the level of each folder. Raises RecursionError for a cycle."""

    @cache
    def level(folder: str) -> int:
        return 1 + max((level(other) for other in imports.get(folder, {})), default=0)

    return {folder: level(folder) for folder in imports}


def direct_imports(imports: Imports) -> Iterator[tuple[str, str]]:
    """Yields the imports that do not follow from others: `a -> c` is left out if `a -> b -> c` exists."""

    @cache
    def below(folder: str) -> frozenset[str]:
        own = imports.get(folder, {})
        return frozenset(own).union(*(below(other) for other in own))

    for folder, others in imports.items():
        for other in others:
            if not any(other in below(between) for between in others if between != other):
                yield folder, other


def summary(folder: str) -> str:
    """Returns the first sentence of the folder's docstring."""
    path = ROOT / folder
    text = (path if path.suffix == ".py" else path / "__init__.py").read_text(encoding="utf-8")
    return " ".join(re.split(r"(?<=\.)\s|\n\n", ast.get_docstring(ast.parse(text)) or "")[0].split())


def format_generated() -> str:
    """Returns the generated part of the page: a picture in Mermaid, and a table from the lowest level up."""
    imports = folder_imports()
    number = {folder: f"n{i}" for i, folder in enumerate(sorted(imports))}
    lines = ["```mermaid", "flowchart TB"]
    lines += [f'  {number[folder]}["{folder}"]' for folder in sorted(imports)]
    lines += [f"  {number[a]} --> {number[b]}" for a, b in sorted(direct_imports(imports))]
    lines += ["```", "", "| level | folder | contents |", "|---|---|---|"]
    ordered = sorted(levels(imports).items(), key=lambda item: (item[1], item[0]))
    lines += [f"| {level} | `{folder}` | {summary(folder)} |" for folder, level in ordered]
    return "\n".join(lines) + "\n"


def format_page(page: str) -> str:
    """Returns the page with its generated part replaced."""
    return replace_generated(page, format_generated())


def main() -> None:
    PAGE.write_text(format_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
