"""The bounds of a sample on a GPU agree with the data sheet; every sample is in the list."""

from __future__ import annotations

from gpu_bounds import ALL, CHIP, COLUMNS, SAMPLES, rows_of, table


def test_every_sample_is_in_the_list() -> None:
    parts = {"vision/resnet.nacre"}  # blocks alone
    assert {path.relative_to(SAMPLES).as_posix() for path in SAMPLES.rglob("*.nacre")} == {
        sample.file for sample in ALL
    } | parts


def test_operations_and_bytes_give_the_bounds() -> None:
    rows = rows_of(ALL[0], "")
    assert [row[2] for row in rows] == ["B=1", "B=256"]
    for row in rows:
        kernels, launches, flops, bytes, microseconds = map(float, row[4:9])
        assert 1 <= kernels <= launches, row
        moving, slowest = bytes / CHIP.bandwidth * 1e12, flops / CHIP.flops * 1e15
        fastest = flops / max(CHIP.products.values()) * 1e15
        # The figures are rounded.
        assert 0.998 * max(moving, fastest) - 0.01 <= microseconds <= 1.002 * (moving + slowest) + 0.01, row
    assert float(rows[1][6]) > 200 * float(rows[0][6])
    assert table(rows).splitlines()[2].count("|") == len(COLUMNS) + 1
