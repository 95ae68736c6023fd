"""PMML files that are cut off, inconsistent, hostile or unknown: a diagnostic with the line, the tree and the node."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nacre.compiler.readers.pmml import expressions, markup, predicates
from nacre.compiler.readers.table import read_file
from nacre.compiler.readers.writing.graph_writer import GraphWriter
from nacre.dialect.diagnostics import Diagnostic, DiagnosticError
from test_random_pmml import Writer


def whole() -> str:
    writer = Writer(3, classes=True)
    writer.treatments = dict.fromkeys(writer.treatments, "")
    text = writer.file(writer.mining("average", [writer.tree(), writer.tree()]))
    return re.sub(r"(<(?:Node|Segment|TreeModel|DataField|PMML))", r"\n\1", text).lstrip()


def error(text: str | bytes, folder: Path) -> Diagnostic:
    path = folder / "model.pmml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(DiagnosticError) as caught:
        read_file(path)
    return caught.value.diagnostics[0]


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    data = whole().encode()
    for part in range(40):
        found = error(data[: len(data) * part // 40], tmp_path)
        assert found.code == "bad-tree" and "is not XML" in found.message and found.span is not None, (part, found)


def test_changed_bytes_are_an_error_or_a_model(tmp_path: Path) -> None:
    data, refused = whole().encode(), 0
    for place in range(8, len(data), len(data) // 60):
        (tmp_path / "model.pmml").write_bytes(data[:place] + bytes([data[place] ^ 0x05]) + data[place + 1 :])
        try:
            read_file(tmp_path / "model.pmml")
        except DiagnosticError:
            refused += 1
    assert refused > 30, refused


@pytest.mark.parametrize(
    "declared",
    [
        '<!DOCTYPE PMML [<!ENTITY a "x"><!ENTITY b "&a;&a;&a;&a;">]>',
        '<!DOCTYPE PMML SYSTEM "file:///etc/passwd">',
        '<!DOCTYPE PMML [<!ENTITY % p SYSTEM "http://example.invalid/">%p;]>',
    ],
)
def test_document_types_are_refused(declared: str, tmp_path: Path) -> None:
    found = error(declared + whole(), tmp_path)
    assert found.code == "bad-tree" and "document type" in found.message


def test_deep_nesting(tmp_path: Path) -> None:
    """Trees may be deep; files that only nest elements are refused."""
    node = '<Node id="1" score="low"><True/>'
    head, tail = whole().split("<TreeModel", 1)[0], "</TreeModel></Segment></Segmentation></MiningModel></PMML>"
    schema = Writer(1, classes=True).schema()
    for depth, fits in ((1000, True), (5000, False)):
        tree = f'<TreeModel functionName="classification">{schema}{node * depth}{"</Node>" * depth}'
        (tmp_path / "model.pmml").write_text(head + tree + tail)
        if fits:
            read_file(tmp_path / "model.pmml")
        else:
            assert error(head + tree + tail, tmp_path).code == "too-large"


@pytest.mark.parametrize("kind", ["predicates", "expressions"])
def test_nested_predicates_and_expressions(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five levels are read if five are allowed, and not if four are."""
    scope: Any = SimpleNamespace(g=GraphWriter())
    begin, leaf, end = {
        "predicates": ('<CompoundPredicate booleanOperator="and"><True/>', "<True/>", "</CompoundPredicate>"),
        "expressions": ('<Apply function="+"><Constant>1</Constant>', "<Constant>1</Constant>", "</Apply>"),
    }[kind]
    (tmp_path / "m.pmml").write_text(begin * 5 + leaf + end * 5)
    element = markup.parse(tmp_path / "m.pmml")
    for most in (5, 4):
        monkeypatch.setattr(predicates if kind == "predicates" else expressions, "_MOST_NESTED", most)

        def write() -> object:
            if kind == "predicates":
                return predicates.Predicates(scope, lambda x: x, {}).write(element)
            return expressions.write_expression(scope, element)

        if most == 5:
            write()
            continue
        with pytest.raises(DiagnosticError) as caught:
            write()
        assert caught.value.diagnostics[0].code == "too-large"


@pytest.mark.parametrize(
    ("pattern", "text", "code", "message"),
    [
        ('version="4.4"', 'version="9.1"', "unsupported-version", "the version of PMML is 9.1"),
        ('version="4.4"', "", "bad-tree", "`PMML` has no attribute `version`"),
        ("PMML", "PLML", "bad-tree", "the file holds `PLML`"),
        ("MiningModel", "NeuralNetwork", "unsupported-trees", "the file holds NeuralNetwork"),
        ('"average"', '"median"', "unsupported-trees", "the method `median`"),
        ('"average"', '"sum"', "unsupported-trees", "classes are combined by `sum`"),
        ('(id="2"[^>]*>)', r"\1<True/>", "bad-tree", "tree 0, node 2: it has 2 predicates"),
        ('defaultChild="\\d+"', 'defaultChild="999"', "bad-tree", "tree 0, node 1: its default child 999"),
        (r'field="\w+" operator="', 'field="z" operator="', "bad-tree", "the field `z` is not known"),
        (r'operator="(less|greater)\w+"', 'operator="near"', "bad-tree", "the operator `near` is unknown"),
        (r'(id="2".*?value=")[\d.]+', r"\1x", "bad-tree", "the value of `n` is `x`, not a number"),
        (r'(id="2".*?recordCount=")\d+', r"\1many", "bad-tree", "`recordCount` of `ScoreDistribution` is `many`"),
        ('(id="2".*?Distribution value=")low', r"\1none", "bad-tree", "`none` is not a class"),
        ("<Header/><DataDictionary>", "<Header/><Data>", "bad-tree", "is not XML"),
        ('dataType="double"', 'dataType="date"', "unsupported-trees", "the type `date`"),
        ('name="a"', 'name="q"', "bad-tree", "the field `a` is not in the data dictionary"),
        ("<True/>", '<CompoundPredicate booleanOperator="and"/>', "unsupported-trees", "has a condition"),
        ('functionName="classification"', 'functionName="clustering"', "unsupported-trees", "`clustering`"),
    ],
)
def test_inconsistent_files(pattern: str, text: str, code: str, message: str, tmp_path: Path) -> None:
    data = whole()
    data = re.sub('missingValueStrategy="\\w+"', 'missingValueStrategy="defaultChild"', data)
    count = 0 if pattern in ("PMML", "MiningModel") else 1
    changed = re.sub(pattern, text, data, count=count)
    assert changed != data
    found = error(changed, tmp_path)
    assert found.code == code and message in found.message, found
    assert found.span is not None and found.span.line >= 1, found


def test_a_missing_file() -> None:
    with pytest.raises(DiagnosticError, match="cannot be read"):
        read_file(Path("/nowhere/model.pmml"))


def test_strategies_that_add_leaves_up(tmp_path: Path) -> None:
    writer = Writer(600, classes=True)
    text = writer.file(writer.tree(strategy="weightedConfidence"))
    without = re.sub(r'(<Node [^>]*) recordCount="\d+"', r"\1", text)
    found = error(without, tmp_path)
    assert found.code == "bad-tree" and "`Node` has no attribute `recordCount`" in found.message, found
    numbers = Writer(601, classes=False)
    found = error(numbers.file(numbers.tree(strategy="aggregateNodes")), tmp_path)
    assert found.code == "unsupported-trees" and "has a meaning for classes" in found.message, found
    node = '<Node id="1" recordCount="1" score="low"><True/></Node>'
    found = error(_wide(text, node), tmp_path)
    assert found.code == "too-large" and "more than 512 nodes" in found.message, found


def _wide(text: str, node: str) -> str:
    """Returns the file with a root of many leaves."""
    head, tail = re.split(r"<Node .*</Node>", text, maxsplit=1)
    return f'{head}<Node id="0" recordCount="1"><True/>{node * 600}</Node>{tail}'
