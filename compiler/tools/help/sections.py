"""Sections of the pages in `compiler/docs`, and the words that lead to them.

The pages are the only source of the texts; nothing is written twice. A word leads to a section whose heading is that
word in backticks (operators, passes, diagnostics), or to one that a table below names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ...targets.families import FAMILIES
from ...targets.variants import PORTABLE, VARIANTS

DOCS = Path(__file__).parents[2] / "docs"

_SIGNS = (
    "@",
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "and",
    "or",
    "not",
    "true",
    "false",
    "None",
)
_NUMBERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f64")
_CPUS = [family for family in FAMILIES.values() if not family.device]
_TARGETS = ("native", PORTABLE, *VARIANTS, "znver4", *(name for f in _CPUS for name in (f.machine, f.triple)))

_PLAIN_TARGET = re.compile(r"(?<=\w)[:+][\w.+-]+$")
"""The GPU or CPU, and the features, that follow a target: `cuda:sm_90a`, `native+avx512f`."""

LANGUAGE: Mapping[str, Sequence[str]] = {
    "Files": ("language", "comment", "constant"),
    "Types": ("type", "types", "dtype", "dtypes", "bool", *_NUMBERS, "q8", "q4"),
    "Dims": ("dim", "dims", "multiple"),
    "Blocks and models": ("block", "model", "return", "entry", "entries"),
    "Sizes of arguments": ("size", "sizes", "generic", "infer"),
    "Hyper-parameters of models": ("--set", "settings", "hyper-parameters"),
    "Parameters": (
        "param",
        "parameters",
        "from",
        "prefix",
        "weights",
        "key",
        "keys",
        "init",
        "initial",
        "initialize",
        "random-weights",
    ),
    "Instances": ("use", "instances", "instance"),
    "Statements": ("assignment", "statements"),
    "States": ("state", "states", "session"),
    "Training": (
        "train",
        "minimize",
        "training",
        "group",
        "freeze",
        "clip",
        "sgd",
        "adam",
        "adamw",
        "lion",
        "adafactor",
        "muon",
        "optimizer",
        "accumulate",
        "exchange",
    ),
    "Custom gradients": ("grad", "gradient"),
    "Losses and layers": (
        "loss",
        "losses",
        "cross_entropy",
        "mse",
        "bce",
        "kl",
        "focal",
        "contrastive",
        "ctc",
        "layers",
        "dropout",
        "Dropout",
        "LowRank",
        "FakeQuantize",
    ),
    "Loops": ("repeat", "loop", "loops", "for", "collect", "comprehension", "list", "lists"),
    "scan": ("scan", "with"),
    "while": ("while",),
    "if": ("if", "else"),
    "Expressions": ("expressions", "pipe", "|>", "literals", "operators", ".T", ".mT", *_SIGNS),
    "Indexing": ("index", "indexing", "slice", "slices"),
    "Index notation": ("index-notation", "notation"),
    "Functions": ("functions", "rearrange", "zeros", "ones", "tensor", "unstack", "len", "int"),
    "Selected elements": ("nonzero", "masked_select", "unique", "mask"),
    "Mixtures of experts": ("experts", "expert", "mixture", "moe", "dispatch", "sparse", "data-dependent"),
    "Random numbers": ("multinomial", "random_uniform", "random_normal", "random_bits", "random", "seed"),
    "Configurations": ("config", "configuration"),
    "Imports": ("import", "imports"),
    "Tests": ("test", "tests", "given", "expect", "within", "signed", "file"),
    "Budgets": ("budget", "budgets"),
    "Precision": ("quantize", "precision", "keep", "calibrate", "require"),
}
"""Sections of language.md, and the words that lead to them."""

OTHERS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("target", "targets", *_TARGETS), ("artifact", "Targets")),
    **dict.fromkeys(("json", "--json"), ("json", "JSON output")),
    "wasm": ("artifact", "WebAssembly"),
    **dict.fromkeys(("cuda", "gpu", "gpus"), ("artifact", "GPUs")),
    "threads": ("artifact", "Threads"),
    **dict.fromkeys(
        ("int8", "int4", "int4a8", "a8", "a16", "a8bf16", "bf16", "f16", "f32", "tf32"),
        ("precision", "Lower precision"),
    ),
    **dict.fromkeys(("f8", "f8e4m3", "f8e5m2"), ("precision", "8-bit floats")),
    "calibration": ("precision", "Calibration"),
    **dict.fromkeys(("-O", "-O0", "-O1", "-O2", "-O3"), ("command_line", "Optimisation levels")),
    "environment": ("command_line", "Environment variables"),
    "exit-codes": ("command_line", "Exit codes"),
    **dict.fromkeys(("passes", "pass"), ("passes", "Passes of each optimisation level")),
    **dict.fromkeys(("checkpoint", "checkpoints", "safetensors"), ("language", "Parameters")),
    **dict.fromkeys(("function", "def", "class", "lambda"), ("language", "Blocks and models")),
    **dict.fromkeys(("symbolic", "batch"), ("language", "Dims")),
    **dict.fromkeys(("stateful", "streaming", "cache", "kv-cache"), ("language", "States")),
    **dict.fromkeys((".shape", ".dtype", ".rank"), ("language", "Expressions")),
    **dict.fromkeys(("operator", "signature", "attributes", "broadcasting"), ("operators", "Operators")),
    **dict.fromkeys(("error", "errors", "warning", "warnings", "diagnostics"), ("diagnostics", "Diagnostics")),
    **dict.fromkeys(("debug", "debugging", "profiling", "print"), ("command_line", "Debugging and profiling")),
    **dict.fromkeys(("editor", "editors", "vscode"), ("command_line", "Editors")),
    **dict.fromkeys(("python", "api"), ("python", "The Python API")),
    **dict.fromkeys(("numpy", "arguments", "inputs", "results", "dlpack"), ("python", "Arguments and results")),
    **dict.fromkeys(("notebook", "notebooks", "jupyter"), ("python", "Notebooks")),
    **dict.fromkeys(("logging", "progress"), ("python", "Logging")),
    "sessions": ("python", "Sessions"),
    "graphs": ("python", "Graphs"),
    "quantization": ("precision", "Lower precision"),
    "onnx": ("onnx", "ONNX models"),
    **dict.fromkeys(("torch", "pytorch"), ("pytorch", "PyTorch models")),
    **dict.fromkeys(("jax", "stablehlo"), ("stablehlo", "StableHLO and JAX models")),
    "keras": ("keras", "Keras models"),
    "tflite": ("tflite", "TFLite models"),
    **dict.fromkeys(("sklearn", "scikit-learn"), ("sklearn", "scikit-learn")),
    **dict.fromkeys(("xgboost", "lightgbm", "catboost", "trees"), ("trees", "Tree ensembles")),
    **dict.fromkeys(("gguf", "huggingface"), ("language_models", "Language models")),
    **dict.fromkeys(("artifact", "abi", "C"), ("artifact", "The artifact")),
}
"""The page and the section of further words."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a page: its heading without `#`, and its lines."""

    page: str
    heading: str
    level: int
    lines: tuple[str, ...]


@cache
def read_sections(page: str) -> tuple[Section, ...]:
    """Returns the sections of a page in order, each without the sections inside it, and without comments."""
    found: list[Section] = []
    lines: list[str] = []
    in_code = False
    heading, level = "", 0
    for line in (DOCS / f"{page}.md").read_text(encoding="utf-8").splitlines():
        in_code ^= line.startswith("```")
        if line.startswith("<!--") and not in_code:
            continue
        match = None if in_code else re.match(r"(#+) (.*)", line)
        if match is None:
            lines.append(line)
            continue
        found.append(Section(page, heading, level, tuple(lines)))
        heading, level, lines = match[2], len(match[1]), []
    found.append(Section(page, heading, level, tuple(lines)))
    return tuple(section for section in found if section.heading)


@cache
def names_of(page: str) -> Mapping[str, Section]:
    """Returns the sections whose heading begins with a word in backticks, by this word."""
    found: dict[str, Section] = {}
    for section in read_sections(page):
        match = re.match(r"`([\w.-]+)", section.heading)
        if match:
            found.setdefault(match[1], section)
    return found


def find(word: str) -> list[Section]:
    """Returns the sections about a word: those of a construct, an operator, a pass, a diagnostic and a function of
    Python."""
    word = _PLAIN_TARGET.sub("", word)
    headings = [heading for heading, words in LANGUAGE.items() if word in words or word == heading]
    leading = [("language", heading) for heading in headings] + [p for w, p in OTHERS.items() if w == word]
    found = [s for page, heading in leading for s in read_sections(page) if s.heading == heading]
    named = map(names_of, ("operators", "passes", "diagnostics", "python"))
    return found + [names[word] for names in named if word in names]


_MARKS = ("- Internal:", "- Part of the [graph IR]")
"""The lines of operators that a model file cannot call."""


def callable_operators() -> list[str]:
    """Returns the operators that a model file can call by name."""
    return [n for n, section in names_of("operators").items() if not any(x.startswith(_MARKS) for x in section.lines)]


def known_words() -> list[str]:
    """Returns the words that lead to a section, without those of operators in graphs alone."""
    named = [name for page in ("passes", "diagnostics", "python") for name in names_of(page)]
    words = [word for words in LANGUAGE.values() for word in words]
    return [*callable_operators(), *named, *words, *OTHERS]
