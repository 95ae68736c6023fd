"""Finds layers that a policy names without effect: they stay in f32 or become no faster. Warnings name them.

A dtype may be unable to hold a weight, and a kernel multiplies in the wider dtype of its two operands. Both follow from
the graph and the policy; this module measures nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from ...dialect import types
from ...dialect.diagnostics import Diagnostic
from ...dialect.graph import Function, Module, Node, Value, parameter_of, walk
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ...dialect.ops.support.accumulate import may_round, rounded_to
from ...dialect.types import BF16, F16, DType
from ...dialect.wrapping import counted
from ...passes.analysis.factors import Factor, Origins, factors_of, summed_axes, table_of, trained_parameters
from ...passes.quantization.codecs import CASTS
from ...passes.quantization.quantize_weights import can_hold
from ..base.shortened import shortened
from ..model.policy import A16, F32, Policy, Scheme
from ..targets.target import Target

BYTE_PRODUCTS = ("avx512vnni", "avxvnni", "amx-int8")
"""CPU features. With any of them, products with activations in 8 bits are faster than products in f32."""
SHOWN = 4
"""The maximum number of layers that a warning names."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """A use of a weight: the operator that multiplies it or reads its rows, its dtype, and its schemes."""

    path: str
    op: str
    dtype: DType
    weight: Scheme
    activation: Scheme
    held: bool

    @property
    def may_round(self) -> bool:
        """Whether code may round the factors of its products, or it has none, as a table."""
        operator = OPERATORS[self.op]
        return not operator.has("contraction") or may_round(operator)

    @property
    def is_convolution(self) -> bool:
        return OPERATORS[self.op].has("convolution")


def find_effects(module: Module, policies: Mapping[str, Policy]) -> tuple[Diagnostic, ...]:
    """Returns warnings about layers on which a policy has no effect. The module must be one that accepts policies."""
    found: list[Diagnostic] = []
    for function in module.functions:
        policy = policies.get(function.name)
        if policy is not None and policy.rules:
            layers = list(_layers(module, function, policy))
            found += _warnings(function.name, layers)
            found += _selected_weights(module, function, policy, {layer.path for layer in layers})
            found += _trained_weights(module, function, policy)
    return tuple(found)


def _layers(module: Module, function: Function, policy: Policy) -> Iterator[_Layer]:
    definitions: dict[str, Node] = {}
    origins = Origins(definitions, module.parameter_index)
    for node in function.body:
        for factor in _weights(node, origins):
            paths = (factor.parameter or "", node.scope)
            weight, activation = (policy.scheme(of, node.op, paths) for of in ("weights", "activations"))
            held = weight == F32 or can_hold(weight.dtype, factor)
            yield _Layer(paths[0], node.op, factor.value.type.dtype, weight, activation, held)
        definitions.update((value.name, node) for value in node.outputs)


def _weights(node: Node, origins: Origins) -> Iterable[Factor]:
    if not node.outputs or origins.is_known(node):
        return ()
    table = table_of(node, origins)
    return (table,) if table is not None else [f for f in factors_of(node, origins) if f.is_weight]


def _selected_weights(module: Module, function: Function, policy: Policy, rounded: Set[str]) -> Iterator[Diagnostic]:
    """Yields warnings about weights that stay in f32 because each call selects the part that a product reads."""
    definitions: dict[str, Node] = {}
    found: dict[str, Scheme] = {}
    for node in walk(function.body):
        for value in node.inputs if summed_axes(node) is not None else ():
            name = _selected(value, definitions)
            scheme = policy.scheme("weights", node.op, (name, node.scope)) if name is not None else F32
            if name is not None and name not in rounded and scheme != F32:
                found[name] = scheme
        definitions.update((value.name, node) for value in node.outputs)
    for scheme, names in _by_scheme(found).items():
        weights = f"{counted(len(names), 'weight')} of `{function.name}`"
        message = f"`{scheme}` does not round {weights}: each call selects the part that it reads"
        help = "`weight[index]` selects a part of a weight that is rounded; the bounds of `weight[i:i+1]` do not"
        yield Diagnostic("precision-not-held", f"{message} ({shortened(names, SHOWN)})", help=help, severity="warning")


def _trained_weights(module: Module, function: Function, policy: Policy) -> Iterator[Diagnostic]:
    """Yields warnings about weights that stay in f32 because they are trained: only short floats apply to them."""
    trained = trained_parameters(function, module)
    origins = Origins({v.name: n for n in function.body for v in n.outputs}, module.parameter_index, trained)
    found: dict[str, Scheme] = {}
    for node in function.body:
        for factor in _weights(node, origins):
            name = factor.parameter or ""
            scheme = policy.scheme("weights", node.op, (name, node.scope))
            if name in trained.values() and scheme != F32 and scheme.dtype not in CASTS:
                found[name] = scheme
    for scheme, names in _by_scheme(found).items():
        message = f"`{scheme}` does not round {counted(len(names), 'trained weight')} of `{function.name}`"
        help = "bf16 and f16 round trained weights where they are multiplied; compile the trained model for other types"
        yield Diagnostic("precision-not-held", f"{message} ({shortened(names, SHOWN)})", help=help, severity="warning")


def _by_scheme(found: Mapping[str, Scheme]) -> Mapping[Scheme, Sequence[str]]:
    """Returns the weights of each scheme, in their order."""
    return {scheme: [n for n, used in found.items() if used == scheme] for scheme in dict.fromkeys(found.values())}


def _selected(value: Value, definitions: Mapping[str, Node]) -> str | None:
    """Returns the parameter if the value is a part of it that the call selects, else None."""
    is_selected = False
    while (node := definitions.get(value.name)) is not None:
        name = parameter_of(node)
        if name is not None:
            return name if is_selected else None
        if not node.inputs or not any(map(OPERATORS[node.op].has, ("movement", "strided", "view"))):
            return None
        is_selected |= len(node.inputs) > 1
        value = node.inputs[0]
    return None


def _warnings(model: str, layers: Sequence[_Layer]) -> Iterator[Diagnostic]:
    wanted = [layer for layer in layers if layer.weight != F32 and layer.dtype is types.F32]
    others = [layer for layer in layers if layer.weight != F32 and layer.dtype is not types.F32]
    short = [layer for layer in others if layer.weight.dtype != str(layer.dtype)]
    for scheme, dtype in dict.fromkeys((layer.weight, layer.dtype) for layer in short):
        these = [layer for layer in short if (layer.weight, layer.dtype) == (scheme, dtype)]
        message = f"`{scheme}` does not round {_count(these, 0, 'weight')} of `{model}`, kept in {dtype}"
        yield _warning("precision-not-held", message, these, "a policy rounds weights in f32")
    for scheme in dict.fromkeys(layer.weight for layer in wanted):
        these = [layer for layer in wanted if layer.weight == scheme]
        kept = [layer for layer in these if not layer.held]
        if kept:
            message = f"`{scheme}` does not hold {_count(kept, len(_paths(these)), 'weight')} of `{model}`, kept in f32"
            help = "a block format needs whole blocks along one summed axis; `i8` supports every weight"
            yield _warning("precision-not-held", message, kept, help)
    unknown = [layer for layer in layers if layer.activation.dtype == types.I16.name and not layer.may_round]
    for op in dict.fromkeys(layer.op for layer in unknown):
        these = [layer for layer in unknown if layer.op == op]
        message = f"`{these[0].activation}` does not round the factors of {len(_paths(these))} `{op}` of `{model}`"
        yield _warning("precision-not-held", message, these, "only code of `matmul` rounds factors to 16-bit integers")
    narrow = [layer for layer in wanted if layer.held and layer.is_convolution and layer.activation == F32]
    if narrow:
        number, dtypes = len(_paths(narrow)), _dtypes(narrow)
        count, verb = counted(number, "convolution"), "multiplies" if number == 1 else "multiply"
        message = f"{count} of `{model}` {verb} weights in {dtypes} by activations in f32, no faster than in f32"
        help = "`activations convolution to i8 dynamic` beside weights in i8 multiplies bytes"
        yield _warning("precision-not-faster", message, narrow, help)


def find_slow_products(module: Module, targets: Sequence[Target]) -> tuple[Diagnostic, ...]:
    """Returns warnings for products of bf16 that are compiled for a CPU without instructions for them, and for those of
    f16 that dequantize a weight on any CPU."""
    families = [target.family for target in targets]
    plain = [() if family is None else family.bfloat_products for family in families]
    blocks = [() if family is None else family.bfloat_blocks for family in families]
    found: Counter[tuple[DType, bool]] = Counter()
    for function in module.functions:
        definitions = {value.name: node for node in function.body for value in node.outputs}
        for node in function.body:
            dtypes = {value.type.dtype for value in node.inputs[:2]}
            if summed_axes(node) is not None and len(dtypes) == 1:
                found[dtypes.pop(), any(_is_dequantized(v, definitions) for v in node.inputs[:2])] += 1
    diagnostics = []
    floats = _products(found[BF16, False], BF16, "take", "half the memory of f32", "")
    integers, halves = (
        _products(found[dtype, True], dtype, "dequantize", f"a weight to {dtype}", " than with activations in f32")
        for dtype in (BF16, F16)
    )
    for count, needed, message in ((found[BF16, False], plain, floats), (found[BF16, True], blocks, integers)):
        pairs = zip(targets, needed, strict=True)
        slow = [(target, features) for target, features in pairs if features and not any(map(target.has, features))]
        if count and slow:
            target, features = slow[0]
            help = f"`{target.name}` has no instruction for them ({' or '.join(features)})"
            diagnostics.append(Diagnostic("precision-not-faster", message, help=help, severity="warning"))
    cpus = [target for target in targets if target.family is None or not target.family.device]
    if found[F16, True] and cpus:
        help = f"code for `{cpus[0].name}` multiplies them in f32"
        diagnostics.append(Diagnostic("precision-not-faster", halves, help=help, severity="warning"))
    return tuple(diagnostics)


def _products(number: int, dtype: DType, verb: str, rest: str, than: str) -> str:
    ending, are = ("s", "is") if number == 1 else ("", "are")
    return f"{counted(number, 'product')} in {dtype} {verb}{ending} {rest} and {are} no faster{than}"


def find_faster_precision(module: Module, targets: Sequence[Target]) -> str | None:
    """Returns the short form that makes a language model faster on all targets, where its products dequantize weights
    for activations in f32, or widen weights in bf16 or f16; else None. A language model has the entries `prefill` and
    `decode`."""
    functions = {function.name: function for function in module.functions}
    if not {"prefill", "decode"} <= set(functions):
        return None
    nodes = list(walk(functions["decode"].body))
    definitions = {value.name: node for node in nodes for value in node.outputs}
    products = [node.inputs[:2] for node in nodes if summed_axes(node) is not None]
    pairs = [pair for x, y in products for pair in ((x, y), (y, x))]
    slow = [w for x, w in pairs if _is_dequantized(w, definitions, scaled=True) and not _is_rounded(x, definitions)]
    if not slow:
        rounded = any(rounded_to(node) is not None for node in nodes)
        widened = any(_is_widened(w, definitions) and not _is_rounded(x, definitions) for x, w in pairs)
        pays = all(target.unit is not None and target.unit.pairs_of_words for target in targets)
        return A16 if widened and pays and not rounded else None
    families = [target.family for target in targets]
    in_blocks = any(_is_dequantized(w, definitions) for w in slow)
    if in_blocks and all(
        f is not None and any(map(t.has, f.bfloat_blocks)) for t, f in zip(targets, families, strict=True)
    ):
        return "a8bf16"
    return "a8" if all(map(_multiplies_bytes, targets)) else None


def _multiplies_bytes(target: Target) -> bool:
    """Returns whether products with activations in 8 bits are faster than products in f32: by instructions for four
    products of bytes, or in vectors of 32 bytes, which multiply pairs of them."""
    return any(map(target.has, BYTE_PRODUCTS)) or (target.has("avx2") and not target.has("avx512f"))


def _is_dequantized(value: Value, definitions: Mapping[str, Node], *, scaled: bool = False) -> bool:
    """Returns whether the value is a weight in blocks of quantized values, apart from the order of its elements; with
    `scaled`, also one whose scales are a tensor of their own."""
    while (node := definitions.get(value.name)) is not None:
        if node.op == "dequantize_blocks" or (scaled and node.op == "dequantize" and _is_in_blocks(node, definitions)):
            return True
        moves = any(map(OPERATORS[node.op].has, ("movement", "strided", "view")))
        if not node.inputs or not (moves or (scaled and node.op == "multiply")):
            return False
        value = node.inputs[0]
    return False


def _is_widened(value: Value, definitions: Mapping[str, Node]) -> bool:
    """Returns whether the value is a parameter in a short float, widened to f32, apart from the order of its
    elements."""
    while (node := definitions.get(value.name)) is not None:
        if parameter_of(node) is not None:
            return node.output.type.dtype in (BF16, F16)
        if node.op != "cast" and not any(map(OPERATORS[node.op].has, ("movement", "strided", "view"))):
            return False
        value = node.inputs[0]
    return False


def _is_in_blocks(node: Node, definitions: Mapping[str, Node]) -> bool:
    """Returns whether a node dequantizes a matrix whose rows are divided into blocks, with a scale for each."""
    made = definitions.get(node.inputs[0].name)
    return made is not None and made.op == "parameter" and node.output.type.rank > 2


def _is_rounded(value: Value, definitions: Mapping[str, Node]) -> bool:
    node = definitions.get(value.name)
    return value.type.dtype is BF16 or (node is not None and node.op in ("dequantize", "cast"))


def _warning(code: str, message: str, layers: Sequence[_Layer], help: str) -> Diagnostic:
    return Diagnostic(code, f"{message} ({shortened(_paths(layers), SHOWN)})", help=help, severity="warning")


def _paths(layers: Sequence[_Layer]) -> list[str]:
    return list(dict.fromkeys(layer.path for layer in layers))


def _dtypes(layers: Sequence[_Layer]) -> str:
    return " and ".join(dict.fromkeys(layer.weight.dtype for layer in layers))


def _count(layers: Sequence[_Layer], of: int, noun: str) -> str:
    number = len(_paths(layers))
    return f"{number} of {counted(of, noun)}" if of else counted(number, noun)
