"""The syntax tree of a source file, before name lookup.

Every node is immutable and has a span. Spans do not take part in equality, so trees with the same content are equal; a
table keyed by nodes uses their `id` or span. Parentheses, comments and line breaks are not represented: the formatter
works on tokens. Names and shapes are not resolved here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields
from typing import TypeAlias

from ....dialect.diagnostics import Span
from ....dialect.lazy_dataclass import dataclass
from ...model.units import UNITS


@dataclass(frozen=True, slots=True)
class Node:
    span: Span = field(kw_only=True, compare=False, repr=False)


# --- expressions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A single name: a value, a hyper-parameter, a dim, a dtype, an instance, a function ..."""

    name: str


@dataclass(frozen=True, slots=True)
class Integer(Node):
    """A literal such as `3`; never negative (`-3` is a `Unary`) and always below 2**63."""

    value: int


@dataclass(frozen=True, slots=True)
class Float(Node):
    """A literal such as `0.5` or `1e-5`; finite and never negative."""

    value: float


@dataclass(frozen=True, slots=True)
class Boolean(Node):
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True, slots=True)
class Nothing(Node):
    """`None`: a new axis in an index, an absent value elsewhere."""


@dataclass(frozen=True, slots=True)
class String(Node):
    """Text between double quotes; `value` has its escapes resolved."""

    value: str


@dataclass(frozen=True, slots=True)
class Dots(Node):
    """`...`: only among the items of an index or the dims of a type."""


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """A unary operation; `operator` is `-` or `not`."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """A binary operation; `operator` is one of `+ - * / // % ** @`, `== != < <= > >=` (which do not chain), `and`,
    `or`."""

    operator: str
    left: Expression
    right: Expression
    operator_span: Span = field(kw_only=True, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Conditional(Node):
    """`then if condition else otherwise`."""

    condition: Expression
    then: Expression
    otherwise: Expression


@dataclass(frozen=True, slots=True)
class Argument(Node):
    """One argument of a call or of a `<...>` list, in source order: positional where `name` is None.

    Positional ones come first and no name comes twice; the parser checks both.
    """

    value: Expression
    name: Name | None = None


@dataclass(frozen=True, slots=True)
class Call(Node):
    """`function<hypers>(arguments)`. `function` is a Name, an Attribute (`module.f`), an Index (`layer[i]`) or a Call.

    `hypers` is None where no `<...>` was written.
    """

    function: Expression
    arguments: tuple[Argument, ...] = ()
    hypers: tuple[Argument, ...] | None = None


@dataclass(frozen=True, slots=True)
class Attribute(Node):
    """`value.name`: `.T`, `.mT`, `.shape`, a key of a config, a block of an imported file."""

    value: Expression
    name: Name


@dataclass(frozen=True, slots=True)
class Slice(Node):
    """`start:stop:step`; an absent part is None. Only among the items of an index."""

    start: Expression | None = None
    stop: Expression | None = None
    step: Expression | None = None


@dataclass(frozen=True, slots=True)
class Index(Node):
    """`value[items]`: slicing of a tensor, an instance of an array of blocks, an element of `.shape`. Never empty."""

    value: Expression
    items: tuple[Expression | Slice | Dots, ...]


@dataclass(frozen=True, slots=True)
class Pipe(Node):
    """`value |> call`: the call with `value` as its first argument. `x |> f` is `x |> f()`."""

    value: Expression
    call: Call


@dataclass(frozen=True, slots=True)
class List(Node):
    """`[a, b]`."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Tuple(Node):
    """`(a, b)`, `(a,)`, `()`, and the bare `a, b` on the right of an assignment to several names."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Comprehension(Node):
    """`[value for variable in start..stop if condition]`, or without a `stop` over the elements of `start`."""

    value: Expression
    variable: Name
    start: Expression
    stop: Expression | None
    condition: Expression | None = None


@dataclass(frozen=True, slots=True)
class FileData(Node):
    """`file "x.npy"`: the tensor that a file holds. Only in `given` and `expect`."""

    path: String


@dataclass(frozen=True, slots=True)
class Dtype(Node):
    """`f32`, or with a block size `q8[block 32]` or `q8[block 32, zero]`. The name is not checked here."""

    name: str
    block: Integer | Name | None = None
    word: str = ""


@dataclass(frozen=True, slots=True)
class BlockDtype(Node):
    """A dtype with a block size as an argument; one without is a Name."""

    dtype: Dtype


@dataclass(frozen=True, slots=True)
class Reduction(Node):
    """`sum(i, j) x[i] * y[j]`: the right side of an assignment in index notation."""

    operator: Name
    indices: tuple[Name, ...]
    value: Expression


# --- loops and branches at run time ---


@dataclass(frozen=True, slots=True)
class Carry(Node):
    """`h = h0` after `with`: a value that each iteration of a loop passes to the next one, and its initial value."""

    name: Name
    value: Expression


@dataclass(frozen=True, slots=True)
class Scan(Node):
    """`scan t in start..stop with h = h0 { body } collect h`; `span` is the header. Its value are the collected
    values, and the carried names keep their last values."""

    variable: Name
    start: Expression
    stop: Expression
    carried: tuple[Carry, ...]
    body: tuple[Statement, ...]
    collected: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Repeat(Node):
    """`repeat i in start..stop { body } collect h`; `stop` is excluded. Its value are the collected values.

    `repeat layer in layers` has no `stop`: `start` is the array of instances or the list.
    """

    variable: Name
    start: Expression
    stop: Expression | None
    body: tuple[Statement, ...]
    collected: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class While(Node):
    """`while condition with x = x0 { body }`; `span` is the header. The carried names keep their last values."""

    condition: Expression
    carried: tuple[Carry, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Choice(Node):
    """One side of an `if`: statements, and the value on its last line, or None where it has none."""

    body: tuple[Statement, ...]
    value: Expression | None


@dataclass(frozen=True, slots=True)
class If(Node):
    """`if condition { a } else { b }`; `span` is the condition."""

    condition: Expression
    then: Choice
    otherwise: Choice


Expression: TypeAlias = (
    Name
    | Integer
    | Float
    | Boolean
    | Nothing
    | String
    | Unary
    | Binary
    | Conditional
    | Call
    | Attribute
    | Index
    | Pipe
    | List
    | Tuple
    | Comprehension
    | Reduction
    | BlockDtype
    | Scan
    | Repeat
    | While
    | If
)


# --- types ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Type(Node):
    """`f32[..., 4*width]`. A scalar is `f32` or `f32[]`: both have no dims."""

    dtype: Dtype
    dims: tuple[Expression | Dots, ...] = ()


# --- statements -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Param(Node):
    """`param name: type from "key.{i}" transpose 1, 0 if condition = initial`.

    `transpose` is None where the word is absent, () where it stands alone (the last two axes), else the axes. A
    declaration of several names, `param a, b: type`, is one of these for each name, whose span is that of the name.
    """

    name: Name
    type: Type
    key: String | None = None
    transpose: tuple[Integer, ...] | None = None
    condition: Expression | None = None
    initial: Expression | None = None


@dataclass(frozen=True, slots=True)
class State(Node):
    """`state name: type`, optionally with an initial value: `= expression` or `from "key.{i}"`. Several names in one
    declaration are one of these for each name, as in a Param."""

    name: Name
    type: Type
    initial: Expression | None = None
    key: String | None = None


@dataclass(frozen=True, slots=True)
class Instance(Node):
    """One name of a `use`: `query`, or an array of instances: `layer[n]`, `layer[i in 0..n]` with its index."""

    name: Name
    count: Expression | None = None
    variable: Name | None = None
    start: Expression | None = None


@dataclass(frozen=True, slots=True)
class BlockReference(Node):
    """`Linear<a, b>` or `module.Linear<a, outputs=b>`: `path` has one Name, or several if dotted."""

    path: tuple[Name, ...]
    hypers: tuple[Argument, ...] | None = None


@dataclass(frozen=True, slots=True)
class Use(Node):
    """`use query, key = Linear<width, width> if condition else Other<width>`."""

    instances: tuple[Instance, ...]
    block: BlockReference
    condition: Expression | None = None
    otherwise: BlockReference | None = None


@dataclass(frozen=True, slots=True)
class Weights(Node):
    """`weights "model.safetensors" prefix "module."`: a file or a folder, relative to the source file, and the text
    with which each key in it begins."""

    path: String
    prefix: String | None = None


@dataclass(frozen=True, slots=True)
class Assign(Node):
    """`x = value`; with several targets, `value` is a Tuple or any expression with as many results."""

    targets: tuple[Name, ...]
    value: Expression


@dataclass(frozen=True, slots=True)
class AssignPart(Node):
    """`name[items] = value`; `target` is the span of the left side."""

    name: Name
    items: tuple[Expression | Slice | Dots, ...]
    value: Expression
    target: Span = field(kw_only=True, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Update(Node):
    """`adamw<weight_decay=0.1>(lr=lr)`: the block that updates a parameter, and its arguments after the parameter and
    the gradient."""

    block: BlockReference
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Group(Node):
    """`group "*.bias", "*norm*" with adamw<weight_decay=0.0>(lr=lr)`."""

    patterns: tuple[String, ...]
    update: Update


@dataclass(frozen=True, slots=True)
class Freeze(Node):
    """`freeze "embeddings"`."""

    patterns: tuple[String, ...]


@dataclass(frozen=True, slots=True)
class Clip(Node):
    """`clip 1.0`: the greatest norm of all gradients together."""

    norm: Expression


@dataclass(frozen=True, slots=True)
class Accumulate(Node):
    """`accumulate 4`: the number of calls whose gradients one update adds up."""

    count: Expression


@dataclass(frozen=True, slots=True)
class Exchange(Node):
    """`exchange`: the step in two further entries, between which its gradients may be averaged."""


@dataclass(frozen=True, slots=True)
class Minimize(Node):
    """`minimize loss with adamw(lr=lr) { group ...; freeze ...; clip ...; accumulate ...; exchange }`."""

    loss: Name
    update: Update
    lines: tuple[Group | Freeze | Clip | Accumulate | Exchange, ...]


@dataclass(frozen=True, slots=True)
class Grad(Node):
    """`grad { dx = dy * y }`: the gradient of a block; `span` is the word."""

    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Return(Node):
    """`return a, b`: at least one value."""

    values: tuple[Expression, ...]


Statement: TypeAlias = (
    Param | State | Use | Weights | Assign | AssignPart | Repeat | Scan | While | Minimize | Grad | Return
)


# --- items of a file --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Config(Node):
    """`config "config.json" as c`."""

    path: String
    name: Name


@dataclass(frozen=True, slots=True)
class Dim(Node):
    """`dim B in low..high multiple 8`; `high` is included."""

    name: Name
    low: Expression
    high: Expression
    multiple: Expression | None = None


@dataclass(frozen=True, slots=True)
class Import(Node):
    """`import "attention.nacre"`, optionally `as name`."""

    path: String
    name: Name | None = None


@dataclass(frozen=True, slots=True)
class HyperParameter(Node):
    """One name of the `<...>` of a block, with its default if it has one."""

    name: Name
    default: Expression | None = None


@dataclass(frozen=True, slots=True)
class Parameter(Node):
    """`x: f32[B, T]`: an input of a block or model."""

    name: Name
    type: Type


@dataclass(frozen=True, slots=True)
class Result(Node):
    """A result's type, with an optional name: `logits: f32[B, 10]`."""

    type: Type
    name: Name | None = None


@dataclass(frozen=True, slots=True)
class Block(Node):
    """`block Name<hypers>(parameters) -> results { body }`; `span` is the header, up to the `{`."""

    name: Name
    hypers: tuple[HyperParameter, ...]
    parameters: tuple[Parameter, ...]
    results: tuple[Result, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Model(Block):
    """An entry point: a block with the keyword `model`."""


@dataclass(frozen=True, slots=True)
class Train(Model):
    """A training step: an entry point with the keyword `train`."""


@dataclass(frozen=True, slots=True)
class Given(Node):
    """One input of a test: `name = file "x.npy"` or `name = expression`."""

    name: Name
    value: Expression | FileData


@dataclass(frozen=True, slots=True)
class Expect(Node):
    """`expect name = file "y.npy" within 1e-5 signed`; without a name it means the first result, without `within`
    equality. With `signed`, a zero must have the sign of the expected zero."""

    value: Expression | FileData
    name: Name | None = None
    within: Expression | None = None
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Test(Node):
    """`test model "title" { given ...; expect ... }`. `span` is the header."""

    model: Name
    title: String
    givens: tuple[Given, ...]
    expects: tuple[Expect, ...]


@dataclass(frozen=True, slots=True)
class Quantity(Node):
    """`8 MiB`; the unit is a key of UNITS, or empty for a plain count."""

    value: int | float
    unit: str = ""

    @property
    def measure(self) -> str:
        """The measured quantity: `bytes`, `seconds`, `operations`, or `count`."""
        return UNITS[self.unit][0] if self.unit else "count"

    @property
    def base_value(self) -> float:
        """The value in bytes, seconds or operations."""
        return self.value * (UNITS[self.unit][1] if self.unit else 1)


@dataclass(frozen=True, slots=True)
class Limit(Node):
    """`memory(B=1, T=128) <= 8 MiB`; the comparison is one of `< <= > >=`."""

    metric: Name
    arguments: tuple[Argument, ...]
    comparison: str
    quantity: Quantity


@dataclass(frozen=True, slots=True)
class Budget(Node):
    """`budget model { limits }`. `span` is the header."""

    model: Name
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class Scheme(Node):
    """A type in a policy: `q4[block 32]`, or `i8 dynamic`, whose `scale` names the source of scales. `text` is the
    dtype in the canonical form; neither is checked here."""

    text: str
    scale: Name | None = None


@dataclass(frozen=True, slots=True)
class Rule(Node):
    """`weights "encoder.*" to i8` or `activations matmul to i8 dynamic`: a rule for a pattern of paths, or an
    operator."""

    subject: str
    selector: String | Name
    scheme: Scheme


@dataclass(frozen=True, slots=True)
class Keep(Node):
    """`keep "embeddings"`."""

    selector: String | Name


@dataclass(frozen=True, slots=True)
class Calibrate(Node):
    """`calibrate on file "x.npz" by percentile 99.9`."""

    data: FileData
    method: Name | None = None
    number: int | float | None = None


@dataclass(frozen=True, slots=True)
class Require(Node):
    """`require mean cosine >= 0.99 on file "x.npz"`: a metric, in one or two words, and one of `< <= > >=`."""

    figure: Name
    comparison: str
    limit: int | float
    data: FileData


PolicyLine: TypeAlias = Rule | Keep | Calibrate | Require


@dataclass(frozen=True, slots=True)
class Quantize(Node):
    """`quantize model { lines }`. `span` is the header."""

    model: Name
    lines: tuple[PolicyLine, ...]


# A constant of the whole file is an Assign among the items.
Item: TypeAlias = Config | Dim | Import | Assign | Block | Model | Test | Budget | Quantize


@dataclass(frozen=True, slots=True)
class File(Node):
    """A whole source file. `language` is the version that its first line states, None where it states none."""

    language: int | None
    items: tuple[Item, ...]


def walk(tree: object) -> Iterator[Node]:
    """Yields every node of a tree, or of the trees of a tuple."""
    pending: list[object] = [tree]
    while pending:
        part = pending.pop()
        if isinstance(part, tuple):
            pending += part
        elif isinstance(part, Node):
            yield part
            pending += [getattr(part, field.name) for field in fields(part)]
