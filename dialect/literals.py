"""Parses sizes, types and attributes in the text of a graph."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from .dims import DimError, Size, Symbol, parse_size, product
from .graph import Attribute, Constant
from .operator import InferenceError
from .ops.block_quantization import check_blocks
from .printer import LITERALS, WORD
from .reader import DEEPEST, INTEGER, LONGEST_INTEGER, Reader
from .types import BLOCK_DTYPES, DTYPES, Array, DType, Kind, TensorType, dtype_of

_FLOAT = re.compile(r"-?(?:[0-9]+\.[0-9]*(?:e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+)")
_BITS = re.compile(r"0x[0-9a-f]{1,16}")
_DIGEST = re.compile(r"#([0-9a-f]+)")
_DTYPE = re.compile(rf"{WORD.pattern}(?:\[block +[0-9]+(?:, *[a-z0-9]+)?\])?", re.ASCII)
_ELEMENT = re.compile(r"[-+.\w]+")
# Signs, divisions and extremes: constructs that nest in a size without brackets.
_NESTING = re.compile(r"(?:^|[-+*/%(,])\s*-|//|%|min|max")

_LARGEST_CONSTANT = 1 << 40
_MOST_AXES = 32


class LiteralReader(Reader):
    """A reader that has the dims of a module and the data of elided constants."""

    def __init__(self, text: str, file: str, constants: Mapping[str, Array]) -> None:
        super().__init__(text, file)
        self.constants = constants
        self.dims: dict[str, Symbol] = {}
        self.sizes: dict[str, Size] = {}

    def declare(self, symbol: Symbol) -> None:
        self.dims[symbol.name], self.sizes[symbol.name] = symbol, symbol.size

    def _slice(self, stops: str) -> str:
        """Returns the text up to one of the characters outside of brackets; a `//` in it is a division."""
        self.skip()
        start, depth = self.position, 0
        while self.position < len(self.text):
            character = self.text[self.position]
            if character == "\n" or (depth == 0 and character in stops):
                break
            depth += {"(": 1, ")": -1, "[": 1, "]": -1}.get(character, 0)
            if depth > DEEPEST:
                self.fail("brackets are nested too deeply", start)
            self.position += 1
        return self.text[start : self.position].rstrip()

    def _to_size(self, text: str, start: int) -> Size:
        # Most sizes are a single number or dim.
        if text.isascii() and text.isdigit() and len(text) < LONGEST_INTEGER:
            return int(text)
        if text in self.sizes:
            return self.sizes[text]
        too_long = any(len(digits) > LONGEST_INTEGER for digits in re.findall(r"\d+", text))
        if too_long or len(_NESTING.findall(text)) > DEEPEST:
            self.fail("this size is too long", start)
        try:
            return parse_size(text, self.dims)
        except DimError as error:
            self.fail(str(error), start, code="bad-size")

    def size(self) -> Size:
        self.skip()
        start = self.position
        size = self._to_size(self._slice(",])"), start)
        if isinstance(size, int) and size < 0:
            self.fail(f"a size cannot be {size}", start, code="bad-size")
        return size

    def dtype(self) -> DType:
        self.skip()
        start = self.position
        word = self.take(_DTYPE)
        if word is None:
            self.fail("expected a type")
        name = " ".join(word.group().split())
        found = DTYPES.get(name) or BLOCK_DTYPES.get(name)
        return found or self.fail(f"`{name}` is not a dtype", start, help=f"dtypes are {', '.join(DTYPES)}")

    def type(self) -> TensorType:
        dtype = self.dtype()
        shape: list[Size] = []
        if self.accept("["):
            self.list(lambda: shape.append(self.size()), "]")
        start, result = self.position, TensorType(dtype, tuple(shape))
        try:
            check_blocks(result)
        except InferenceError as error:
            self.fail(f"{error.message}: {error.label}", start, code=error.code)
        return result

    def attribute(self) -> Attribute:
        self.skip()
        start = self.position
        string = self.string()
        if string is not None:
            return string
        if self.accept("("):
            parts: list[Attribute] = []
            self.deeper(start)
            self.list(lambda: parts.append(self.attribute()), ")")
            self.depth -= 1
            return tuple(parts)
        if self.accept("constant<"):
            return self.constant(start)
        text = self._slice(",})")
        if text in LITERALS:
            return LITERALS[text]
        if _FLOAT.fullmatch(text):
            return float(text)
        if INTEGER.fullmatch(text) and len(text) <= LONGEST_INTEGER:
            return int(text)
        if not text:
            self.fail("expected an attribute")
        return self._to_size(text, start)

    def constant(self, start: int) -> Constant:
        type = self.type()
        self.expect(",")
        sizes = [s for s in type.shape if isinstance(s, int)]
        small = len(sizes) <= _MOST_AXES and product(max(s, 1) for s in sizes)
        if (
            type.dtype.is_blocked
            or len(sizes) != type.rank
            or not isinstance(small, int)
            or not 0 < small <= _LARGEST_CONSTANT
        ):
            self.fail(f"a constant cannot be {type}", start)
        digest = self.take(_DIGEST)
        if digest is not None:
            self.expect(">")
            array = self.constants.get(digest.group(1))
            if array is None:
                return Constant(None, type, digest.group(1))
            if (dtype_of(array), array.shape) != (type.dtype, type.shape):
                self.fail(f"the data of {digest.group()} is {dtype_of(array)}{list(array.shape)}, not {type}", start)
            return Constant(array)
        elements: list[Array] = []
        if type.rank:
            self.expect("[")
            self.list(lambda: elements.append(self.element(type.dtype)), "]")
        else:
            elements.append(self.element(type.dtype))
        self.expect(">")
        if len(elements) != product(sizes):
            self.fail(f"{type} has {product(sizes)} elements, not {len(elements)}", start)
        return Constant(np.array(elements, type.dtype.numpy).reshape(sizes))

    def element(self, dtype: DType) -> Array:
        self.skip()
        start = self.position
        match = self.take(_ELEMENT)
        text = match.group() if match else self.fail(f"expected an element of {dtype}")
        array = _element(text, dtype)
        return array if array is not None else self.fail(f"`{text}` is no {dtype}", start)


def _element(text: str, dtype: DType) -> Array | None:
    """Returns one element of a constant, or None if the text is not an element of the dtype."""
    if dtype.kind is Kind.BOOL:
        return np.array(text == "true") if text in ("true", "false") else None
    if dtype.is_integer:
        if not re.fullmatch(r"-?[0-9]{1,20}", text):
            return None
        low, high = (
            (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.is_signed else (0, (1 << dtype.bits) - 1)
        )
        return np.array(int(text), dtype.numpy) if low <= int(text) <= high else None
    if _BITS.fullmatch(text):
        bits = int(text, 16)
        return (
            np.frombuffer(bits.to_bytes(8, "little")[: dtype.bytes], dtype.numpy)[0]
            if bits >> dtype.bits == 0
            else None
        )
    if text in ("inf", "-inf", "nan"):
        return np.asarray(float(text)).astype(dtype.numpy)
    if not _FLOAT.fullmatch(text):
        return None
    with np.errstate(over="ignore"):
        value = np.asarray(float(text)).astype(dtype.numpy)
    return value if np.isfinite(value.astype(np.float64)) else None
