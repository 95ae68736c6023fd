"""Operators of ATen: the core set is covered, and PyTorch's own samples agree with eager."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import nacre
import pytest
from nacre.dialect.interpreter import Interpreter, load_parameter

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from aten_suite import FAILURES, operators  # noqa: E402
from nacre.compiler.readers.torch.convert import operator_names  # noqa: E402  # after the check that PyTorch is there
from nacre.compiler.readers.torch.writing.arrays import to_array, to_tensor  # noqa: E402
from op_runs import run_samples  # noqa: E402
from op_samples import samples_of  # noqa: E402

MISSING = Path(__file__).with_name("missing.txt")
"""The operators of the core set without a converter, each with the reason, after a line with the count."""


def core_operators() -> set[str]:
    """Returns the overloads that PyTorch marks as core ATen."""
    found = set()
    for name in torch._C._dispatch_get_all_op_names():
        base, _, overload = name.removeprefix("aten::").partition(".")
        packet = getattr(torch.ops.aten, base, None) if name.startswith("aten::") else None
        if packet is not None and (overload or "default") in packet.overloads():
            operator = getattr(packet, overload or "default")
            if torch.Tag.core in operator.tags:
                found.add(f"{base}.{overload or 'default'}")
    return found


def test_the_core_set_is_covered_as_listed() -> None:
    core = core_operators()
    first, *lines = MISSING.read_text(encoding="utf-8").splitlines()
    listed = dict(line.split(": ", 1) for line in lines if line)
    assert core - set(operator_names()) == set(listed)
    assert first == f"{len(core) - len(listed)} of {len(core)} operators of core ATen are supported. Missing:"
    assert all(listed.values())


FEW = (
    "add|mul|div.*|sub|pow|fmod|remainder|clamp|where|eq|lt|logical_and|bitwise_xor|sum|mean|var|amax|argmin|any|cumsum"
    "|prod|max|sort|topk|cat|split|index_select|gather|scatter|index_put|flip|roll|permute|diagonal|as_strided|cdist"
    "|nn.functional.(conv2d|avg_pool2d|max_pool2d|layer_norm|group_norm|interpolate|pad|embedding|gelu|softplus|fold"
    "|grid_sample|adaptive_avg_pool2d|normalize)|linalg.vector_norm|median|kthvalue|searchsorted"
    "|bucketize|hypot|fmax|dist"
)
MORE = "cummax|cummin|copysign|fmin"
"""The dtype of a sample depends on the position of its operator."""
REFUSED = {"nn.functional.pad.circular", "as_strided.partial_views"}
"""Samples that need an operator without a converter, or read a tensor by its positions in memory."""
SHORT = (torch.float32, torch.bfloat16, torch.int64, torch.bool)


@pytest.mark.parametrize("part", range(2))
def test_samples_agree_with_eager(part: int) -> None:
    infos = [*operators(FEW), *operators(MORE)][part::2]
    samples = [
        sample
        for number, info in enumerate(infos)
        for dtype in (SHORT[number % 4], torch.float32)
        if info.supports_dtype(dtype, "cpu")
        for sample in samples_of(info, dtype, 1)
    ]
    outcomes = run_samples(samples)
    failed = [f"{o.sample.name} {o.sample.dtype}: {o.kind} {o.reason}" for o in outcomes if o.kind in FAILURES]
    assert not failed
    refused = {o.sample.name.partition("#")[0]: o.reason for o in outcomes if o.kind != "pass"}
    assert refused.keys() == {info.full_name for info in infos} & REFUSED, refused
    assert len(outcomes) > 50


SPECIAL = torch.tensor([0.0, -0.0, 1.0, torch.nan, -torch.inf, 1.0, -torch.nan, torch.inf, -1.0])


class Specials(torch.nn.Module):
    def forward(self, x: torch.Tensor, short: torch.Tensor, image: torch.Tensor) -> Sequence[torch.Tensor]:
        pairs = torch.copysign(x[:, None], x), torch.copysign(short[:, None], short)
        rolled = torch.stack([x.roll(i) for i in range(9)], 1)
        images = [
            torch.nn.functional.interpolate(image, mode="bicubic", align_corners=corners, **to)
            for corners in (False, True)
            for to in ({"size": (7, 1)}, {"scale_factor": (1.7, 0.6)})
        ]
        return (*pairs, *torch.cummax(rolled, 0), *torch.cummin(rolled, 0), *torch.cummax(x > 0, 0), *images)


def test_special_values_agree_with_eager() -> None:
    arguments = (SPECIAL, SPECIAL.bfloat16(), torch.rand(1, 2, 4, 5))
    module = nacre.from_torch(Specials(), arguments).module
    results = Interpreter(module, load_parameter).run("Specials", list(map(to_array, arguments)))
    for made, expected in zip(results, Specials()(*arguments), strict=True):
        found = to_tensor(made)
        assert torch.isclose(found, expected, rtol=1e-5, atol=1e-6, equal_nan=True).all()
        assert not expected.is_floating_point() or (found.signbit() == expected.signbit())[~expected.isnan()].all()
