"""Reads the text that `printer` writes, and the same written by hand.

A fault of the text is a diagnostic with its span, never a traceback; syntax stops at the first fault, names and types
of results are all reported. By hand, attributes that have defaults may be left out, and come in any order. What a graph
means is not checked here but by `verifier`.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from .diagnostics import Collector, Diagnostic, DiagnosticError, Span
from .dims import INFINITY, DimError, Size, Symbol, parse_size, product
from .graph import Attribute, Constant, Function, Module, Node, Parameter, Region, Value
from .operator import REQUIRED
from .ops import OPERATORS
from .printer import FILE_NAME, LITERALS, SCOPE, VALUE_NAME, WORD
from .types import DTYPES, F32, Array, DType, Kind, TensorType, dtype_of

# Sizes are read apart from this, so that their `//` begins no comment.
_SPACE = re.compile(r"(?:\s+|//[^\n]*)*")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_INTEGER = re.compile(r"-?[0-9]+(?!\w|\.(?!\.))")
_FLOAT = re.compile(r"-?(?:[0-9]+\.[0-9]*(?:e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+)")
_BITS = re.compile(r"0x[0-9a-f]{1,16}")
_DIGEST = re.compile(r"#([0-9a-f]+)")
_ELEMENT = re.compile(r"[-+.\w]+")
_POSITION = re.compile(r":([0-9]{1,9}):([0-9]{1,9})-([0-9]{1,9}):([0-9]{1,9})\)")
_FOUND = re.compile(r'%?[\w.]+|"[^"\n]*"?|\S')
_NEGATED = re.compile(r"(?:^|[-+*/%(,])\s*-")

_DEEPEST = 40
"""How deep brackets and regions may be nested: deeper text is no graph that anybody printed."""
_LONGEST_INTEGER = 30
_LARGEST_CONSTANT = 1 << 40
_MOST_AXES = 32


@dataclass(frozen=True, slots=True)
class ParsedModule:
    """A module and where its nodes stand in the text. (The span of a node itself points into the model's source.)"""

    module: Module
    file: str
    text: str
    spans: Mapping[int, Span] = field(repr=False)

    def locate(self, node: Node) -> Span | None:
        return self.spans.get(id(node))


def parse_module(text: str, file: str = "<graph>", constants: Mapping[str, Array] | None = None) -> Module:
    """The module that the text describes. `constants` gives the data of elided constants by their digest.

    Raises DiagnosticError.
    """
    return parse_text(text, file, constants).module


def parse_text(text: str, file: str = "<graph>", constants: Mapping[str, Array] | None = None) -> ParsedModule:
    """As `parse_module`, with the places of nodes in the text."""
    parser = _Parser(text, file, constants or {})
    module = parser.module()
    parser.faults.raise_if_any({file: text})
    return ParsedModule(module, file, text, parser.spans)


class _Parser:
    def __init__(self, text: str, file: str, constants: Mapping[str, Array]) -> None:
        self.text, self.file, self.constants = text, file, constants
        self.position = 0
        self.depth = 0
        self.dims: dict[str, Symbol] = {}
        self.sizes: dict[str, Size] = {}
        self.faults = Collector()
        self.spans: dict[int, Span] = {}
        self.names: set[str] = set()
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", text))]

    # --- places and faults ---

    def _place(self, position: int) -> tuple[int, int]:
        line = bisect.bisect_right(self.line_starts, position)
        return line, position - self.line_starts[line - 1] + 1

    def span(self, start: int, end: int) -> Span:
        return Span(self.file, *self._place(start), *self._place(end))

    def report(self, code: str, message: str, start: int, end: int, label: str = "", help: str = "") -> None:
        self.faults.report(Diagnostic(code, message, self.span(start, end), label, help=help))

    def fail(self, message: str, start: int | None = None, *, code: str = "graph-syntax", help: str = "") -> NoReturn:
        """Ends with a fault at `start`, by default at what comes next."""
        label = ""
        if start is None:
            start = self.position
            found = _FOUND.match(self.text, start)
            end = found.end() if found else start
            label = f"found `{found.group()}`" if found else "found the end of the text"
        else:
            end = max(start, self.position)
        self.report(code, message, start, end, label, help)
        raise DiagnosticError(self.faults.diagnostics, {self.file: self.text})

    # --- words and brackets ---

    def skip(self) -> None:
        """Passes over space and comments."""
        match = _SPACE.match(self.text, self.position)
        assert match is not None
        self.position = match.end()

    def peek(self, literal: str) -> bool:
        self.skip()
        if not self.text.startswith(literal, self.position):
            return False
        after = self.text[self.position + len(literal) : self.position + len(literal) + 1]
        return not (literal[-1].isalnum() and (after.isalnum() or after == "_"))

    def accept(self, literal: str) -> bool:
        if not self.peek(literal):
            return False
        self.position += len(literal)
        return True

    def expect(self, literal: str) -> None:
        if not self.accept(literal):
            self.fail(f"expected `{literal}`")

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.skip()
        match = pattern.match(self.text, self.position)
        if match:
            self.position = match.end()
        return match

    def string(self) -> str | None:
        self.skip()
        start = self.position
        match = self.take(_STRING)
        if match is None:
            return None
        try:
            value = json.loads(match.group())
        except ValueError:
            self.fail("malformed text in quotes", start)
        assert isinstance(value, str)
        return value

    def name(self, what: str, bare: re.Pattern[str] = WORD) -> str:
        quoted = self.string()
        if quoted is not None:
            return quoted
        match = self.take(bare)
        return match.group() if match else self.fail(f"expected {what}")

    def integer(self, what: str) -> int:
        start = self.position
        match = self.take(_INTEGER)
        if match is None:
            self.fail(f"expected {what}")
        if len(match.group()) > _LONGEST_INTEGER:
            self.fail("this number is too large", start)
        return int(match.group())

    def list(self, item: Callable[[], None], close: str) -> None:
        """Items between commas up to the closing bracket; a comma may stand before it."""
        while not self.accept(close):
            item()
            if not self.accept(","):
                self.expect(close)
                return

    def deeper(self, start: int) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            self.fail("brackets are nested too deeply", start)

    # --- sizes, types, attributes ---

    def _slice(self, stops: str) -> str:
        """The text up to one of the characters outside of round brackets."""
        self.skip()
        start, depth = self.position, 0
        while self.position < len(self.text):
            character = self.text[self.position]
            if character == "\n" or (depth == 0 and character in stops):
                break
            depth += {"(": 1, ")": -1}.get(character, 0)
            if depth > _DEEPEST:
                self.fail("brackets are nested too deeply", start)
            self.position += 1
        return self.text[start : self.position].rstrip()

    def _to_size(self, text: str, start: int) -> Size:
        # Most sizes are a number or a dim.
        if text.isascii() and text.isdigit() and len(text) < _LONGEST_INTEGER:
            return int(text)
        if text in self.sizes:
            return self.sizes[text]
        too_long = any(len(digits) > _LONGEST_INTEGER for digits in re.findall(r"\d+", text))
        if too_long or len(_NEGATED.findall(text)) > _DEEPEST:
            self.fail("malformed size", start)
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
        word = self.take(WORD)
        if word is None:
            self.fail("expected a type")
        if word.group() not in DTYPES:
            self.fail(f"`{word.group()}` is no dtype", start, help=f"dtypes are {', '.join(DTYPES)}")
        return DTYPES[word.group()]

    def type(self) -> TensorType:
        dtype = self.dtype()
        shape: list[Size] = []
        if self.accept("["):
            self.list(lambda: shape.append(self.size()), "]")
        return TensorType(dtype, tuple(shape))

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
        if _INTEGER.fullmatch(text) and len(text) <= _LONGEST_INTEGER:
            return int(text)
        if not text:
            self.fail("expected an attribute")
        return self._to_size(text, start)

    def constant(self, start: int) -> Constant:
        type = self.type()
        self.expect(",")
        sizes = [s for s in type.shape if isinstance(s, int)]
        small = len(sizes) <= _MOST_AXES and product(max(s, 1) for s in sizes)
        if len(sizes) != type.rank or not isinstance(small, int) or not 0 < small <= _LARGEST_CONSTANT:
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

    # --- nodes ---

    def value_name(self) -> str:
        self.expect("%")
        return self.name("a name", VALUE_NAME)

    def use(self, visible: Mapping[str, Value]) -> Value:
        self.skip()
        start = self.position
        name = self.value_name()
        if name not in visible:
            self.report("undefined-value", f"`%{name}` is not defined here", start, self.position)
            return Value(name, TensorType(F32))
        return visible[name]

    def uses(self, visible: Mapping[str, Value], close: str) -> tuple[Value, ...]:
        values: list[Value] = []
        self.list(lambda: values.append(self.use(visible)), close)
        return tuple(values)

    def define(self, name: str, type: TensorType, start: int, visible: dict[str, Value]) -> Value:
        if name in self.names:
            self.report("duplicate-value", f"`%{name}` is defined twice", start, start + len(name) + 1)
        self.names.add(name)
        visible[name] = Value(name, type)
        return visible[name]

    def arguments(self, visible: dict[str, Value]) -> tuple[Value, ...]:
        self.expect("(")
        found: list[Value] = []

        def argument() -> None:
            self.skip()
            start = self.position
            name = self.value_name()
            self.expect(":")
            found.append(self.define(name, self.type(), start, visible))

        self.list(argument, ")")
        return tuple(found)

    def location(self) -> Span | None:
        if not self.accept("loc("):
            return None
        file = self.name("a file", FILE_NAME)
        numbers = self.take(_POSITION)
        if numbers is None:
            self.fail("expected `:line:column-line:column)`")
        return Span(file, *map(int, numbers.groups()))

    def node(self, visible: dict[str, Value]) -> Node:
        self.skip()
        start = self.position
        names: list[tuple[str, int]] = []
        if self.peek("%"):
            while True:
                self.skip()
                begin = self.position
                names.append((self.value_name(), begin))
                if not self.accept(","):
                    break
            self.expect("=")
        op = self.name("an operator")
        self.expect("(")
        inputs = self.uses(visible, ")")
        attributes: dict[str, Attribute] = {}

        def pair() -> None:
            self.skip()
            begin = self.position
            name = self.name("the name of an attribute")
            if name in attributes:
                self.fail(f"the attribute `{name}` is given twice", begin)
            self.expect("=")
            attributes[name] = self.attribute()

        if self.accept("{"):
            self.list(pair, "}")
        self.expect(":")
        types: list[TensorType] = []
        if self.accept("("):
            self.expect(")")
        else:
            types.append(self.type())
            while self.accept(","):
                types.append(self.type())
        if len(types) != len(names):
            self.fail(f"{len(names)} results have {len(names)} types, not {len(types)}", start)
        scope = self.name("a scope", SCOPE) if self.accept("@") else ""
        span = self.location()
        head = self.span(start, self.position)
        regions: list[Region] = []
        while self.accept("do"):
            regions.append(self.region(visible))
        outputs = tuple(
            self.define(name, type, begin, visible) for (name, begin), type in zip(names, types, strict=True)
        )
        node = Node(op, inputs, outputs, _complete(op, attributes), tuple(regions), scope, span)
        self.spans[id(node)] = head
        return node

    def region(self, outer: Mapping[str, Value]) -> Region:
        self.deeper(self.position)
        visible = dict(outer)
        arguments = self.arguments(visible)
        self.expect("{")
        body = self.body("yield", visible)
        results = self.uses(visible, "}")
        self.depth -= 1
        return Region(arguments, body, results)

    def body(self, last: str, visible: dict[str, Value]) -> tuple[Node, ...]:
        """Nodes up to the word that begins the last line."""
        nodes: list[Node] = []
        while not self.accept(last):
            if self.position == len(self.text):
                self.fail(f"expected `{last}`")
            nodes.append(self.node(visible))
        return tuple(nodes)

    # --- declarations ---

    def function(self) -> Function:
        name = self.name("the name of a function")
        self.names = set()
        visible: dict[str, Value] = {}
        arguments = self.arguments(visible)
        self.expect("->")
        self.expect("(")
        signature: list[tuple[str | None, TensorType]] = []

        def result() -> None:
            self.skip()
            begin = self.position
            given: str | None = self.name("a type")
            if not self.accept(":"):
                given, self.position = None, begin
            signature.append((given, self.type()))

        start = self.position
        self.list(result, ")")
        names = tuple(given for given, _ in signature if given is not None)
        if names and len(names) != len(signature):
            self.fail("some results have names and some have none", start)
        span = self.location()
        self.expect("{")
        body = self.body("return", visible)
        self.skip()
        start = self.position
        results = self.uses(visible, "}")
        found, expected = [v.type for v in results], [type for _, type in signature]
        if found != expected and not self.faults.diagnostics:
            self.report(
                "type-mismatch",
                f"`{name}` declares {', '.join(map(str, expected)) or 'no result'}"
                f" and returns {', '.join(map(str, found)) or 'nothing'}",
                start,
                self.position,
            )
        return Function(name, arguments, body, results, names, span)

    def dim(self) -> Symbol:
        self.skip()
        start = self.position
        name = self.name("the name of a dim")
        self.expect("in")
        low = self.integer("a number")
        self.expect("..")
        self.skip()
        bounded = self.position < len(self.text) and self.text[self.position] in "-0123456789"
        high = self.integer("a number") if bounded else INFINITY
        multiple = self.integer("a number") if self.accept("multiple") else 1
        if not WORD.fullmatch(name) or low > high or low < 0 or multiple < 1 or name in self.dims:
            reason = "declared twice" if name in self.dims else "malformed"
            self.fail(f"the dim `{name}` is {reason}", start)
        return Symbol(name, low, high, multiple)

    def parameter(self) -> Parameter:
        name = self.name("the name of a parameter")
        counts: list[int] = []
        if self.accept("["):
            self.list(lambda: counts.append(self.integer("a number")), "]")
        self.expect(":")
        type = self.type()
        source = self.string() if self.accept("from") else None
        transpose: tuple[int, ...] | None = None
        if self.accept("transpose"):
            axes: list[int] = []
            self.expect("(")
            self.list(lambda: axes.append(self.integer("an axis")), ")")
            transpose = tuple(axes)
        return Parameter(name, type, tuple(counts), source, transpose, self.location())

    def module(self) -> Module:
        self.expect("module")
        name = self.name("the name of the module")
        parameters: list[Parameter] = []
        functions: list[Function] = []
        while True:
            self.skip()
            if self.position == len(self.text):
                return Module(name, tuple(self.dims.values()), tuple(parameters), tuple(functions))
            if self.accept("dim"):
                symbol = self.dim()
                self.dims[symbol.name], self.sizes[symbol.name] = symbol, symbol.size
            elif self.accept("param"):
                parameters.append(self.parameter())
            elif self.accept("func"):
                functions.append(self.function())
            else:
                self.fail("expected `dim`, `param` or `func`")


def _element(text: str, dtype: DType) -> Array | None:
    """One element of a constant, or None where the text is none of the dtype."""
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


def _complete(op: str, given: Mapping[str, Attribute]) -> tuple[tuple[str, Attribute], ...]:
    """The attributes in the order of their names, with the defaults of those left out."""
    full = dict(given)
    if op in OPERATORS:
        for spec in OPERATORS[op].attributes:
            if spec.default is not REQUIRED:
                full.setdefault(spec.name, spec.default)
    return tuple(sorted(full.items()))
