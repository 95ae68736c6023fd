"""`Discretize` and `MapValues`: numbers and texts, missing values, defaults, ends of intervals, and broken tables."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from test_bad_pmml import error
from test_random_pmml import interpret

NAN, INF = np.nan, np.inf
FIELDS = (
    '<DataField name="a" optype="continuous" dataType="double"/>'
    '<DataField name="c" optype="categorical" dataType="string"><Value value="red"/><Value value="blue"/></DataField>'
)
BINS = (
    '<DiscretizeBin binValue="{}"><Interval closure="openClosed" rightMargin="0"/></DiscretizeBin>'
    '<DiscretizeBin binValue="{}"><Interval closure="openOpen" leftMargin="0" rightMargin="2"/></DiscretizeBin>'
    '<DiscretizeBin binValue="{}"><Interval closure="closedOpen" leftMargin="2"/></DiscretizeBin>'
)
PAIRS = '<FieldColumnPair field="c" column="colour"/><FieldColumnPair field="a" column="size"/>'
TABLE = (
    "<InlineTable><row><colour>red</colour><size>1</size><out>{}</out></row>"
    "<row><colour> blue </colour><size>2.5</size><out>{}</out></row>"
    "<row><colour>green</colour><size>1</size><out>99</out></row></InlineTable>"
)
ROWS = np.asarray(
    [(x, c) for x in (-INF, -1, 0.0, 1, np.nextafter(2, 0), 2, 2.5, INF, NAN) for c in (0, 1, NAN)], np.float64
)


def derived(kind: str, expression: str) -> str:
    return f'<DerivedField name="d" optype="continuous" dataType="{kind}">{expression}</DerivedField>'


def regression(field: str) -> str:
    """Returns a file whose prediction is the derived field."""
    schema = '<MiningField name="a"/><MiningField name="c" invalidValueTreatment="asIs"/>'
    return (
        f'<PMML version="4.4" xmlns="http://www.dmg.org/PMML-4_4"><Header/><DataDictionary>{FIELDS}</DataDictionary>'
        f'<RegressionModel functionName="regression"><MiningSchema>{schema}</MiningSchema><LocalTransformations>{field}'
        '</LocalTransformations><RegressionTable intercept="0"><NumericPredictor name="d" coefficient="1"/>'
        "</RegressionTable></RegressionModel></PMML>"
    )


def tree(field: str, texts: tuple[str, ...]) -> str:
    """Returns a file whose prediction is the place of the derived text, or -1 for a missing one."""
    nodes = "".join(
        f'<Node score="{i}"><SimplePredicate field="d" operator="equal" value="{text}"/></Node>'
        for i, text in enumerate(texts)
    )
    text = regression(field)
    head, tail = text.split("<RegressionTable", 1)[0], "</Node></TreeModel></PMML>"
    head = head.replace("<RegressionModel ", '<TreeModel noTrueChildStrategy="returnLastPrediction" ')
    return f'{head}<Node score="-1"><True/>{nodes}{tail}'


def bins(x: float) -> int:
    return 0 if x <= 0 else 1 if x < 2 else 2


def rows_of_table(x: float, colour: float, results: tuple[float, float]) -> float | None:
    return {(1.0, 0.0): results[0], (2.5, 1.0): results[1]}.get((x, colour))


def check(text: str, wanted: list[float], folder: Path) -> None:
    path = folder / "model.pmml"
    path.write_text(text)
    np.testing.assert_array_equal(interpret(path, "main", ROWS), wanted)


@pytest.mark.parametrize("missing", [None, -7.0])
def test_intervals(missing: float | None, tmp_path: Path) -> None:
    given = "" if missing is None else f'mapMissingTo="{missing}"'
    expression = f'<Discretize field="a" {given}>{BINS.format(1.5, 10, 20)}</Discretize>'
    lost = NAN if missing is None else missing
    wanted = [lost if np.isnan(x) else (1.5, 10, 20)[bins(x)] for x, _ in ROWS]
    check(regression(derived("double", expression)), wanted, tmp_path)


def test_intervals_with_text_and_a_gap(tmp_path: Path) -> None:
    inner = BINS.format("low", "high", "low").replace("<DiscretizeBin", "<!-- --><DiscretizeBin", 1)
    gap = inner.replace('leftMargin="0"', 'leftMargin="1"')
    expression = f'<Discretize field="a" defaultValue="none">{gap}</Discretize>'
    places = [-1.0 if np.isnan(x) else 2.0 if 0 < x <= 1 else (0.0, 1.0, 0.0)[bins(x)] for x, _ in ROWS]
    check(tree(derived("string", expression), ("low", "high", "none")), places, tmp_path)


@pytest.mark.parametrize(("given", "lost", "other"), [("", NAN, NAN), ('defaultValue="5" mapMissingTo="6"', 6, 5)])
def test_tables(given: str, lost: float, other: float, tmp_path: Path) -> None:
    expression = f'<MapValues outputColumn="out" {given}>{PAIRS}{TABLE.format(3, 4)}</MapValues>'
    wanted = [
        lost if np.isnan([x, c]).any() else other if (found := rows_of_table(x, c, (3, 4))) is None else found
        for x, c in ROWS
    ]
    check(regression(derived("integer", expression)), wanted, tmp_path)


def test_tables_with_text(tmp_path: Path) -> None:
    expression = f'<MapValues outputColumn="out">{PAIRS}{TABLE.format("yes", "no")}</MapValues>'
    places = [-1 if (found := rows_of_table(x, c, (0, 1))) is None else found for x, c in ROWS]
    check(tree(derived("string", expression), ("yes", "no", "99")), places, tmp_path)


@pytest.mark.usefixtures("unchecked")  # the table is a stricter check
def test_compiled_code(tmp_path: Path) -> None:
    expression = f'<MapValues outputColumn="out" defaultValue="5">{PAIRS}{TABLE.format(3, 4)}</MapValues>'
    (tmp_path / "model.pmml").write_text(regression(derived("double", expression)))
    model = nacre.compile(tmp_path / "model.pmml", tmp_path / "model.so")
    for count in (len(ROWS), 0, 1):
        np.testing.assert_array_equal(model(ROWS[:count]), interpret(tmp_path / "model.pmml", "main", ROWS[:count]))


@pytest.mark.parametrize(
    ("expression", "code", "message"),
    [
        ('<Discretize field="a"/>', "bad-tree", "`Discretize` has no results"),
        ('<Discretize field="c">' + BINS + "</Discretize>", "unsupported-trees", "`c` is text, which has no intervals"),
        ('<Discretize field="x">' + BINS + "</Discretize>", "bad-tree", "the field `x` is not known here"),
        ('<Discretize field="a">' + BINS.replace("openOpen", "open") + "</Discretize>", "bad-tree", "is `open`"),
        ('<Discretize field="a">' + BINS.replace("{}", "low") + "</Discretize>", "bad-tree", "is `low`, not a number"),
        (f"<MapValues>{PAIRS}{TABLE}</MapValues>", "bad-tree", "no attribute `outputColumn`"),
        (f'<MapValues outputColumn="in">{PAIRS}{TABLE}</MapValues>', "bad-tree", "a row has no cell `in`"),
        (f'<MapValues outputColumn="out">{TABLE}</MapValues>', "bad-tree", "`MapValues` reads no fields"),
        (
            f'<MapValues outputColumn="out">{PAIRS}<TableLocator/></MapValues>',
            "unsupported-trees",
            "outside of the file",
        ),
        (f'<MapValues outputColumn="out">{PAIRS}</MapValues>', "bad-tree", "no `InlineTable`"),
    ],
)
def test_broken_look_ups(expression: str, code: str, message: str, tmp_path: Path) -> None:
    found = error(regression(derived("double", expression.replace("{}", "1"))), tmp_path)
    assert found.code == code and message in found.message and found.span is not None, found
