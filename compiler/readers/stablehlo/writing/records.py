"""Operations of a file as records, decoded from the JSON of the parsing child."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .....dialect.types import BF16, BOOL, F8E4M3, F8E5M2, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType

ELEMENTS: Mapping[str, DType] = {
    "i1": BOOL, "i8": I8, "i16": I16, "i32": I32, "i64": I64, "ui8": U8, "ui16": U16, "ui32": U32, "ui64": U64,
    "f16": F16, "bf16": BF16, "f32": F32, "f64": F64, "f8E4M3FN": F8E4M3, "f8E5M2": F8E5M2,
}  # fmt: skip
"""The dtypes of the graph, by the names of MLIR."""
COMPLEX: Mapping[str, str] = {"complex<f32>": "f32", "complex<f64>": "f64"}
"""The elements of the parts of complex numbers."""


@dataclass(frozen=True, slots=True)
class TypeRecord:
    """A tensor: sizes, None where one is dynamic, and the name of its dtype. `other` is the text of any other type."""

    shape: tuple[int | None, ...]
    element: str
    other: str = ""

    @property
    def is_complex(self) -> bool:
        return self.element in COMPLEX

    @property
    def part(self) -> TypeRecord:
        """The type of the real or the imaginary part; that of a real tensor itself."""
        return TypeRecord(self.shape, COMPLEX.get(self.element, self.element), self.other)


@dataclass(frozen=True, slots=True, eq=False)
class BlockRecord:
    arguments: Sequence[tuple[int, TypeRecord]]
    operations: Sequence[OperationRecord]


@dataclass(frozen=True, slots=True, eq=False)
class OperationRecord:
    """An operation. `name` omits the prefix `stablehlo.`; operands and results are numbers of values."""

    name: str
    operands: Sequence[int]
    results: Sequence[tuple[int, TypeRecord]]
    attributes: Mapping[str, Any]
    regions: Sequence[BlockRecord]
    line: int

    def word(self, name: str) -> str:
        """Returns the word of an attribute such as `#stablehlo<comparison_direction LT>`."""
        found = re.search(r"(\w+)>$", str(self.attributes.get(name, "")))
        return found.group(1) if found else ""


@dataclass(frozen=True, slots=True, eq=False)
class FunctionRecord:
    name: str
    private: bool
    body: BlockRecord


def decode(data: Mapping[str, Any]) -> list[FunctionRecord]:
    """Returns the functions of a file."""
    return [
        FunctionRecord(each["name"], each["private"], _block(each))
        for each in data["functions"]
        if each["op"] == "func.func"
    ]


def _block(data: Mapping[str, Any]) -> BlockRecord:
    arguments = [(number, _type(found)) for number, found in data["arguments"]]
    return BlockRecord(arguments, [_operation(each) for each in data["operations"]])


def _operation(data: Mapping[str, Any]) -> OperationRecord:
    results = [(number, _type(found)) for number, found in data["results"]]
    regions = [_block(region) for region in data["regions"]]
    name = data["op"].removeprefix("stablehlo.")
    return OperationRecord(name, data["operands"], results, data["attributes"], regions, data["line"])


def _type(data: Mapping[str, Any]) -> TypeRecord:
    if "other" in data:
        return TypeRecord((), "", data["other"])
    return TypeRecord(tuple(data["shape"]), data["element"])


def decode_array(data: Mapping[str, Any]) -> Any:
    """Returns the elements of a dense attribute."""
    dtype = ELEMENTS[data["element"]].numpy
    if "data" in data:
        found = np.frombuffer(base64.b64decode(data["data"]), np.dtype(data["dtype"]))
        return found.astype(dtype).reshape(data["shape"])
    if "splat" in data:
        return np.broadcast_to(np.asarray(_number(data["splat"].split(" : ")[0], dtype), dtype), data["shape"])
    text = data["text"].split("dense<", 1)[1].rsplit(">", 2)[0]
    if text.startswith('"0x'):
        return np.frombuffer(bytes.fromhex(text[3:-1]), dtype).reshape(data["shape"])
    numbers = re.findall(r"[^\s\[\],]+", text.rsplit("> :", 1)[0])
    return np.array([_number(each, dtype) for each in numbers], dtype).reshape(data["shape"])


def decode_complex(data: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns the real and the imaginary parts of a dense attribute of complex numbers, which is text."""
    dtype = ELEMENTS[COMPLEX[data["element"]]].numpy
    text = data["text"].split("dense<", 1)[1].rsplit("> : tensor<", 1)[0]
    if text.startswith('"0x'):
        numbers = np.frombuffer(bytes.fromhex(text[3:-1]), dtype)
    else:
        numbers = np.array([_number(each, dtype) for each in re.findall(r"[^\s\[\](),]+", text)], dtype)
    pairs = np.broadcast_to(numbers.reshape(-1, 2), (int(np.prod(data["shape"])), 2))  # one pair may stand for all
    return pairs[:, 0].reshape(data["shape"]), pairs[:, 1].reshape(data["shape"])


def _number(text: str, dtype: np.dtype[Any]) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("0x"):
        # The bits of a number that has no decimal form, most significant first.
        return np.frombuffer(bytes.fromhex(text[2:])[::-1], dtype)[0]
    return dtype.type(float(text)) if dtype.kind not in "iub" else dtype.type(int(text))
