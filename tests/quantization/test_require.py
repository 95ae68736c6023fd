"""What a policy requires is measured before an artifact takes its place."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.dialect.diagnostics import DiagnosticError

DIGITS = Path(__file__).parents[2] / "samples" / "digits"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    with np.load(DIGITS / "test_images.npz") as file:
        images, labels = (file[name] for name in file.files)
    np.savez(tmp_path / "samples.npz", image=images[:40].astype(np.float32), labels=labels[:40])
    path = tmp_path / "policy.nacre"
    path.write_text(
        'quantize classify {\n  weights "*" to bf16\n  activations "*" to bf16\n'
        '  require LINE on file "samples.npz"\n  require mean cosine >= 0.99 on file "samples.npz"\n}\n'
    )
    return path


def with_line(policy: Path, line: str) -> str:
    policy.write_text(policy.read_text().replace("LINE", line))
    return str(policy)


def test_models_that_meet_their_requirement_are_compiled(policy: Path, tmp_path: Path) -> None:
    model = nacre.compile(DIGITS / "digits.nacre", tmp_path / "d.so", precision=with_line(policy, "error <= 1e-2"))
    assert "require error" in model.describe()["options"]["precision"]


def test_an_unmet_requirement_reports_the_worst_values_and_writes_nothing(policy: Path, tmp_path: Path) -> None:
    with pytest.raises(DiagnosticError) as error:
        nacre.compile(DIGITS / "digits.nacre", tmp_path / "d.so", precision=with_line(policy, "cosine >= 0.9999999"))
    (fault,) = error.value.diagnostics
    assert fault.code == "not-accurate"
    assert fault.span is not None and (fault.span.file, fault.span.line) == (str(policy), 4)
    assert "required is >= 0.9999999" in fault.message
    head, *points = (note.message.split() for note in fault.notes)
    assert head[:3] == ["worst", "points", "error"]
    assert points[0][-1].startswith("digits.nacre:") and len(points) >= 4
    assert [float(p[2]) for p in points] == sorted(float(p[2]) for p in points)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.nacre", "samples.npz"]


def test_digits_in_int8_name_as_many_digits_rightly(tmp_path: Path) -> None:
    with np.load(DIGITS / "test_images.npz") as file:
        images, labels = file["images"].astype(np.float32), file["labels"]
    right = []
    for precision in ("f32", "int8"):
        model = nacre.compile(DIGITS / "digits.nacre", tmp_path / f"{precision}.so", precision=precision)
        results = np.concatenate([model(batch) for batch in np.array_split(images, 2)])
        right.append(np.count_nonzero(results.argmax(axis=1) == labels))
    # 0.3 points of 360 images are one image.
    assert right[0] - right[1] <= 1
