"""The committed bounds of the samples on a GPU: complete, consistent with its data sheet, and those of today's code."""

from __future__ import annotations

from gpu_bounds import ALL, CHIP, COLUMNS, PAGE, SAMPLES, rows_of


def read_rows() -> list[dict[str, str]]:
    lines = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in PAGE.read_text().splitlines()]
    head, _, *rows = [line for line in lines if len(line) > 1]
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_every_sample_is_in_the_list() -> None:
    parts = {"vision/resnet.nacre"}  # blocks alone
    files = {path.relative_to(SAMPLES).as_posix() for path in SAMPLES.rglob("*.nacre")}
    assert files == {sample.file for sample in ALL} | parts


def test_every_sample_has_bounds_that_its_operations_and_bytes_give() -> None:
    rows = read_rows()
    expected = {(f"`{sample.file}`", precision or "as written") for sample in ALL for precision in sample.precisions}
    assert {(row["sample"], row["precision"]) for row in rows} == expected
    for row in rows:
        kernels, launches, flops, bytes, microseconds = (float(row[name]) for name in COLUMNS[4:9])
        assert 1 <= kernels <= launches, row
        moving, slowest = bytes / CHIP.bandwidth * 1e12, flops / CHIP.flops * 1e15
        fastest = flops / max(CHIP.products.values()) * 1e15
        # The figures of the page are rounded.
        assert 0.998 * max(moving, fastest) - 0.01 <= microseconds <= 1.002 * (moving + slowest) + 0.01, row


def test_bounds_of_a_sample_are_those_of_the_page() -> None:
    """A change of the code for this sample needs `python tests/bench/gpu_bounds.py`."""
    made = rows_of(ALL[0], "")
    known = [row for row in read_rows() if (row["sample"], row["precision"]) == (made[0][0], made[0][3])]
    assert made == [tuple(row.values()) for row in known]
