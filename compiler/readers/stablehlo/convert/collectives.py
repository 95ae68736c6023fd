"""Operations between devices. An artifact runs on a single device, whose number is 0: it communicates with itself."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.types import DType
from ...writing.tensors import Tensor
from ..writing.records import decode_array
from ..writing.use import Converters, Use


def _device(use: Use) -> Sequence[Tensor]:
    """Returns 0, the number of the device or the process."""
    return [use.g.full(shape=(), value=0, dtype=use.dtype)]


def _devices(use: Use, name: str) -> list[list[int]]:
    """Returns the lists of devices in an attribute. Each must be device 0."""
    given = use.record.attributes.get(name)
    found: list[list[int]] = [] if given is None else decode_array(given).tolist()
    if any(device != 0 for devices in found for device in devices):
        use.fail(f"has `{name}` {found}; an artifact runs on one device")
    return found


def _within_one(use: Use) -> Sequence[Tensor]:
    """Returns the operands: a sum, a concatenation or a part over one device changes nothing."""
    if any(len(group) > 1 for group in _devices(use, "replica_groups")):
        use.fail("has a group with the same device twice", code="bad-mlir")
    return use.operands


def _broadcast(use: Use) -> Sequence[Tensor]:
    """Returns the operand, or zeros if no group has the device."""
    groups = _devices(use, "replica_groups")
    return [use.x if any(groups) else _zeros(use, use.dtype)]


def _permute(use: Use) -> Sequence[Tensor]:
    """Returns the operand, or zeros if no pair of source and target has the device."""
    return [use.x if _devices(use, "source_target_pairs") else _zeros(use, use.dtype)]


def _zeros(use: Use, dtype: DType) -> Tensor:
    return use.g.full(shape=use.x.shape, value=0, dtype=dtype)


CONVERTERS: Converters = {
    "partition_id": _device,
    "replica_id": _device,
    **dict.fromkeys(("all_gather", "all_reduce", "all_to_all", "cross-replica-sum", "reduce_scatter"), _within_one),
    "collective_broadcast": _broadcast,
    "collective_permute": _permute,
}
