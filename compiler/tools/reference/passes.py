"""Writes the reference page of the graph passes: `python -m nacre.compiler.tools.reference.passes`.

The page is `compiler/docs/passes.md`; a test compares it with the result of `format_page`. Descriptions are the
docstrings of the passes, options are their fields. Before and after are a `tests/files/passes/example-*.graph` and
the result of the passes on its first line, `// RUN: cse`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from difflib import SequenceMatcher
from pathlib import Path
from textwrap import fill

from ....passes.manager import Pass
from ....passes.pass_list import format_option, parse_pipeline, run_pipeline_text
from ....passes.registry import PASSES
from ...graph_passes import DEVICE_PASSES, DEVICE_STRICT_PASSES, GRAPH_PASSES, STRICT_PASSES
from ...model.policy import SHORT_FORMS
from ...quantization.apply import passes_of

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "compiler" / "docs" / "passes.md"
EXAMPLES = ROOT / "tests" / "files" / "passes"
RUN = "// RUN: "

_HEAD = """# Graph passes

This page is generated from the passes by `python -m nacre.compiler.tools.reference.passes`.

A pass maps a [graph](graph.md) to a graph that computes the same results, up to the differences in rounding that its
section states. It assumes a valid graph and produces one; the pass manager verifies the graph after each pass. All
passes assume that `check-indices` has run before them. Sections list further assumptions. A pass with nothing to do
returns the graph unchanged. Nodes without uses remain until `dce` removes them.

`nacre opt` runs passes on the text of a graph. Options are written in braces, and words of a list are separated by `|`:

```sh
nacre opt model.graph --pass cse,dce --pass 'unroll-repeat{limit=8}' \\
    --pass 'decompose{keep=softmax|gelu}'
```

`nacre dump model.nacre --between canonicalize fuse` shows the effect of passes on a model. `nacre bisect` finds the
rewrite of a pass that changes a result. [Contributing](contributing.md#a-pass) describes how to add a pass.

## Passes of each optimisation level

Passes run in the order of this table. A cell shows the options of a pass, or x if all have their defaults.
`--strict` changes the list of GPUs in the same way as that of CPUs. `compiler/graph_passes.py` defines the order.

"""

_POLICY = "With a precision policy ([Lower precision](precision.md)), these passes run before those of the level: {}."

_READING = """Each section below ends with an example: the input and the output of the pass. The output prints all
attributes; the input omits those with default values.

"""

_VALUES: Mapping[str, str] = {
    "int": "a number",
    "int | None": "a number, or `none`",
    "bool": "`true` or `false`",
    "str": "a word",
    "tuple[str, ...]": "words, separated by `|`",
}


def format_page() -> str:
    """Returns the text of the page."""
    policy = ", ".join(map(_link, _policy_passes()))
    policies = fill(_POLICY.format(policy), 120, break_long_words=False, break_on_hyphens=False)
    return f"{_HEAD}{_format_levels()}\n{policies}\n\n{_READING}" + "\n".join(map(_format_pass, PASSES))


def _link(name: str) -> str:
    return f"[`{name}`](#{name})"


def _policy_passes() -> list[str]:
    """Returns the names of the passes that apply precision policies, in order."""
    names: list[str] = []
    for policy in SHORT_FORMS.values():
        names = _merge(names, [step.name for step in passes_of(policy)])
    return names


def _levels() -> dict[str, tuple[Pass, ...]]:
    """Returns the passes by the options that select them; options that select the same passes are joined."""
    by_text: dict[str, str] = {}
    tables = (("", "", GRAPH_PASSES), (" --strict", "", STRICT_PASSES), ("", " on GPUs", DEVICE_PASSES))
    for suffix, device, table in tables:
        for level, text in table.items():
            if table is not GRAPH_PASSES and text == GRAPH_PASSES[level]:
                continue
            option = f"`-O{level}{suffix}`{device}"
            by_text[text] = f"{by_text[text]}, {option}" if text in by_text else option
    return {options: parse_pipeline(text) for text, options in by_text.items()}


def _format_levels() -> str:
    levels = _levels()
    rows: list[str] = []
    for steps in levels.values():
        rows = _merge(rows, [step.name for step in steps])
    columns = [_align(rows, steps) for steps in levels.values()]
    lines = [f"| pass | {' | '.join(levels)} | purpose |", f"|---|{'---|' * len(levels)}---|"]
    for name, cells in zip(rows, zip(*columns, strict=True), strict=True):
        lines.append(f"| {_link(name)} | {' | '.join(cells)} | {_purpose(name)} |")
    return "\n".join(lines) + "\n"


def _merge(first: list[str], second: list[str]) -> list[str]:
    """Returns a list that contains both lists in order."""
    merged: list[str] = []
    for kind, begin, end, from_second, to_second in SequenceMatcher(None, first, second, False).get_opcodes():
        merged += first[begin:end] if kind == "equal" else [*first[begin:end], *second[from_second:to_second]]
    return merged


def _align(rows: Sequence[str], steps: Sequence[Pass]) -> list[str]:
    """Returns a cell for each row: the non-default options of a step, `x` for none, or nothing without a step."""
    rest = list(steps)
    cells = []
    for name in rows:
        if not rest or rest[0].name != name:
            cells.append("")
            continue
        step = rest.pop(0)
        defaults = _options(type(step))
        given = [f"`{option}={text}`" for option, text in _options(step).items() if text != defaults[option]]
        cells.append(", ".join(given) or "x")
    assert not rest, rest
    return cells


def _purpose(name: str) -> str:
    """Returns the first sentence of the module of a pass, which begins with its name."""
    module = inspect.getmodule(PASSES[name])
    first = " ".join(inspect.cleandoc((module and module.__doc__) or "").split("\n\n")[0].split())
    assert first.startswith(f"`{name}`: "), f"the docstring of {module} does not begin with the name of its pass"
    return first.removeprefix(f"`{name}`: ").rstrip(".")


def _options(step: Pass | type[Pass]) -> dict[str, str]:
    """Returns the options of a pass, or their defaults, as text."""
    found = {}
    for field in fields(step):  # type: ignore[arg-type]  # every pass is a dataclass
        value = field.default if isinstance(step, type) else getattr(step, field.name)
        found[field.name.replace("_", "-")] = "required" if value is MISSING else format_option(value)
    return found


def _format_pass(name: str) -> str:
    kind = PASSES[name]
    lines = [f"## `{name}`", "", inspect.cleandoc(kind.__doc__ or ""), ""]
    lines += [*_format_options(kind), f"Runs {_where(name)}.", "", *_format_example(name)]
    return "\n".join(lines) + "\n"


def _where(name: str) -> str:
    def has(text: str) -> bool:
        return any(step.name == name for step in parse_pipeline(text))

    on_cpus = [level for level, text in GRAPH_PASSES.items() if has(text)]
    on_gpus = [level for level, text in DEVICE_PASSES.items() if has(text)]
    found, strict_passes = (on_cpus, STRICT_PASSES) if on_cpus else (on_gpus, DEVICE_STRICT_PASSES)
    at = ", ".join(f"`-O{level}`" for level in found)
    if on_cpus != on_gpus:
        at += " on CPUs" if on_cpus else " on GPUs"
    strict = "" if all(has(strict_passes[level]) for level in found) else ", without `--strict`"
    policy = "with a precision policy" if name in _policy_passes() else ""
    return " and ".join(filter(None, (f"at {at}{strict}" if at else "", policy))) or "on request only"


def _format_options(kind: type[Pass]) -> Iterator[str]:
    defaults = _options(kind)
    if defaults:
        yield from ("| option | value | default |", "|---|---|---|")
        for field in fields(kind):  # type: ignore[arg-type]  # every pass is a dataclass
            default = defaults[field.name.replace("_", "-")].replace("|", "\\|")
            shown = f"`{default}`" if default else "no words"
            yield f"| `{field.name.replace('_', '-')}` | {_VALUES[str(field.type)]} | {shown} |"
        yield ""


def _format_example(name: str) -> Sequence[str]:
    """Returns the command, the graph before and the graph after."""
    path = EXAMPLES / f"example-{name}.graph"
    first, before = path.read_text(encoding="utf-8").split("\n", 1)
    passes = first.removeprefix(RUN)
    assert first.startswith(RUN) and parse_pipeline(passes)[0].name == name, f"{path} does not run {name}"
    after = run_pipeline_text(before, passes, file=path.name)
    return ("```", before.strip(), "```", "", f"After `{passes}`:", "", "```", after.strip(), "```")


def main() -> None:
    PAGE.write_text(format_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
