"""The C header of one artifact: `abi.h`, and for each entry a function with typed pointers and dims.

The wrappers are static inline, so that a program needs only the header and the library. They add types and names to
`nacre_api.call`; the artifact performs all checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...dialect.dims import INFINITY, Symbol, format_size
from ...dialect.types import BOOL, DType
from .json_descriptions import ABI_VERSION
from .link import RUNTIME_FOLDER
from .spec import ArgumentSpec, ArtifactSpec, EntrySpec, c_identifier

_WORDS = """
alignas alignof and asm auto bool break case catch char class compl const constexpr continue default delete do double
else enum explicit export extern false final float for friend goto if inline int long mutable namespace new not nullptr
operator or override private protected public register restrict return short signed sizeof static static_assert struct
switch template this throw true try typedef typeid typename typeof union unsigned using virtual void volatile wchar_t
while xor NULL
"""
_LOCALS = frozenset({"session", "workspace", "workspace_bytes", "dims", "inputs", "outputs", "frame"})
_RESERVED = _LOCALS | frozenset(_WORDS.split())
"""Words of C and C++, and the wrappers' own names: arguments in the header must not use them."""


def unique_names(names: Iterable[str], taken: Iterable[str]) -> list[str]:
    """Returns the names as C identifiers, each different from the others and from those taken."""
    used = set(taken)
    result: list[str] = []
    for name in names:
        identifier = c_identifier(name)
        while identifier in used:
            identifier += "_"
        used.add(identifier)
        result.append(identifier)
    return result


def _bits_of(dtype: DType) -> str:
    """Describes an element whose C type has another meaning."""
    if dtype is BOOL:
        return "0 or 1"
    return f"the bits of {dtype}" if dtype.is_float and dtype.c_name.startswith("uint") else ""


def _comment(text: str) -> str:
    return text.replace("*/", "* /")


def _describe_dim(symbol: Symbol) -> str:
    text = f"{symbol.low}..{'' if symbol.high >= INFINITY else symbol.high}"
    return f"{symbol.name} in {text}" + (f", a multiple of {symbol.multiple}" if symbol.multiple != 1 else "")


def _document(entry: EntrySpec) -> list[str]:
    def line(argument: ArgumentSpec) -> str:
        bits = _bits_of(argument.type.dtype)
        return f"  {argument.name}: {argument.type}" + (f" ({bits})" if bits else "")

    lines = [entry.name + (f": {entry.doc}" if entry.doc else "")]
    for title, arguments in (("arguments", entry.arguments), ("results", entry.results)):
        if arguments:
            lines += [f"{title}:", *map(line, arguments)]
    if entry.dims:
        lines.append(f"dims: {'; '.join(map(_describe_dim, entry.dims))}")
    if entry.constraints:
        lines.append(f"constraints: {'; '.join(map(str, entry.constraints))}")
    lines.append(f"workspace: {format_size(entry.workspace)} bytes")
    if entry.states:
        bound = ", ".join(symbol.name for symbol in entry.session_dims)
        lines.append(f"states: {len(entry.states)}" + (f"; the session has the dims {bound}" if bound else ""))
    return ["/* " + "\n * ".join(_comment("\n".join(lines)).splitlines()), " */"]


def _values(kind: str, name: str, values: Sequence[str]) -> str:
    return f"    {kind}{name}[{max(1, len(values))}] = {{{', '.join(values) or '0'}}};"


def _emit_entry(entry: EntrySpec, index: int, prefix: str, function: str, helper: str) -> list[str]:
    names = unique_names(
        [*(s.name for s in entry.dims), *(a.name for a in (*entry.arguments, *entry.results))], _RESERVED
    )
    dims, rest = names[: len(entry.dims)], names[len(entry.dims) :]
    inputs, outputs = rest[: len(entry.arguments)], rest[len(entry.arguments) :]
    dim_parameters = [f"int64_t {name}" for name in dims]
    pointers = [f"const {a.type.dtype.c_name} *{name}" for a, name in zip(entry.arguments, inputs, strict=True)]
    pointers += [f"{r.type.dtype.c_name} *{name}" for r, name in zip(entry.results, outputs, strict=True)]
    parameters = ["nacre_session *session", *dim_parameters, *pointers, "void *workspace", "int64_t workspace_bytes"]
    return [
        *_document(entry),
        f"static inline nacre_status {function}(",
        *(f"    {parameter}," for parameter in parameters[:-1]),
        f"    {parameters[-1]}) {{",
        _values("const int64_t ", "dims", dims),
        _values("const void *", "inputs", inputs),
        _values("void *", "outputs", outputs),
        f"    const nacre_call frame = {{session, {index}, inputs, outputs, dims, workspace, workspace_bytes}};",
        f"    return {prefix}_api()->call(&frame);",
        "}",
        "",
        "/* Bytes of workspace for these dims, or -1 if the entry does not take them. */",
        f"static inline int64_t {helper}({', '.join(dim_parameters) or 'void'}) {{",
        _values("const int64_t ", "dims", dims),
        f"    return {prefix}_api()->workspace_bytes({index}, dims);",
        "}",
        "",
    ]


def _document_session(spec: ArtifactSpec) -> list[str]:
    if not spec.states:
        return []
    dims = ", ".join(map(_describe_dim, spec.session_dims)) or "none, but the pointer to them is not NULL"
    return [
        " *",
        " * Entries with states need a session whose options say the dims of the states, in this order:",
        f" *   {dims}",
        f" * Its states take {format_size(spec.session_bytes)} bytes:",
        *(f" *   {_comment(state.name)}: {state.type}" for state in spec.states),
    ]


def emit_header(spec: ArtifactSpec) -> str:
    """Returns the text of the header."""
    prefix = c_identifier(spec.name)
    guard = f"NACRE_{prefix.upper()}_H"
    functions = unique_names((f"{prefix}_{entry.name}" for entry in spec.entries), [f"{prefix}_api"])
    helpers = unique_names((f"{function}_workspace" for function in functions), [f"{prefix}_api", *functions])
    lines = [
        f"/* The model `{_comment(spec.name)}`. Written by Nacre {spec.compiler_version}.",
        " *",
        f" *   nacre_session *session = NULL;   if ({prefix}_api()->session_create(NULL, &session)) ...",
        f" *   {functions[0]}(session, ...);   returns 0, or a status that {prefix}_api()->last_error() describes",
        f" *   {prefix}_api()->session_destroy(session);",
        " *",
        " * Workspaces are aligned to NACRE_ALIGNMENT bytes; NULL selects the one that session_reserve has allocated.",
        *_document_session(spec),
        " */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        (RUNTIME_FOLDER / "abi.h").read_text().replace(" ABI.md specifies each call.", ""),
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        f"const nacre_api *nacre_get_api_{prefix}(uint32_t version);",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        f"static inline const nacre_api *{prefix}_api(void) {{ return nacre_get_api_{prefix}({ABI_VERSION}); }}",
        "",
    ]
    for index, (entry, function, helper) in enumerate(zip(spec.entries, functions, helpers, strict=True)):
        lines += _emit_entry(entry, index, prefix, function, helper)
    return "\n".join([*lines, f"#endif /* {guard} */", ""])
