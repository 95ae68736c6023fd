"""The folders inside the package form levels, and the architecture page shows them."""

from __future__ import annotations

import pytest
from nacre.compiler.tools.reference.architecture import PAGE, direct_imports, folder_imports, format_page, levels

STAGES = ("artifact", "base", "codegen", "dumps", "host", "lower", "model", "pipeline.py", "targets", "weights")
"""The places in `compiler/` that a build goes through."""
TOOLS = ("compiler/comparison", "compiler/tools", "compiler/validate")
"""The places that examine builds and their results."""


@pytest.mark.parametrize(("package", "least"), [("compiler", 30), ("passes", 10), ("dialect", 15)])
def test_folders_form_no_circle(package: str, least: int) -> None:
    imports = folder_imports(package)
    assert len(imports) > least, "the imports were not found"
    found = levels(imports)
    assert all(found[folder] > found[other] for folder, others in imports.items() for other in others if other in found)


def room_imports() -> dict[str, dict[str, str]]:
    """The imports between the rooms of the compiler: its files, and its folders with all folders in them."""
    rooms: dict[str, dict[str, str]] = {}
    for folder, others in folder_imports().items():
        room = "/".join(folder.split("/")[:2])
        own = rooms.setdefault(room, {})
        own.update({"/".join(name.split("/")[:2]): place for name, place in others.items()})
        own.pop(room, None)
    return rooms


def test_no_import_between_rooms_runs_up() -> None:
    """The stages, the comparison and the validation of results stand below the API, and the API below the tools."""
    imports = room_imports()
    assert len(imports) > 30, "the imports were not found"
    found = levels(imports)
    assert found["compiler/pipeline.py"] < found["compiler/api.py"] < found["compiler/tools"] < found["compiler/cli"]
    assert found["compiler/validate"] < found["compiler/comparison"] < found["compiler/quantization"]


def test_a_circle_is_found() -> None:
    with pytest.raises(RecursionError):
        levels({"a": {"b": "a.py:1"}, "b": {"c": "b.py:2"}, "c": {"b": "c.py:3"}})


def test_levels_and_direct_imports() -> None:
    imports = {"a": {"b": "a.py:1", "c": "a.py:2"}, "b": {"c": "b.py:1"}, "c": {}}
    assert levels(imports) == {"a": 3, "b": 2, "c": 1}
    assert list(direct_imports(imports)) == [("a", "b"), ("b", "c")]


def test_stages_import_no_tool() -> None:
    wrong = [
        f"{place}: {folder} -> {other}"
        for folder, others in folder_imports().items()
        for other, place in others.items()
        if folder.startswith("compiler/") and folder.split("/")[1] in STAGES and other.startswith(TOOLS)
    ]
    assert not wrong, "\n".join(wrong)


def test_committed_page_is_the_generated_one() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == format_page(page), "run python -m nacre.compiler.tools.reference.architecture"
