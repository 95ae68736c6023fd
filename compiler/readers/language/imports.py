"""A file's own names: dims, constants, configurations, blocks, and imports from other files.

`import "x.nacre"` brings the blocks and dims of another file, `import "x.nacre" as m` the file itself, whose names
follow a dot. Constants do not come along: those of two files may have one name. A block always resolves names in the
file that defines it. A dim is shared by the whole program: files that declare the same name must give it the same
range.
"""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from ....dialect.diagnostics import DiagnosticError, Note
from ....dialect.dims import Symbol
from ....dialect.lazy_dataclass import dataclass
from . import syntax
from .configuration import load_config
from .context import Context
from .files import read_file
from .parse import decode, normalise, parse
from .statics import demand_integer
from .values import ERROR, AnyValue, Binding, BlockValue, FileScope, Frame, Kind, ModuleValue, Poison, contains_tensor

FILES = 256
LIBRARY = Path(__file__).parents[2] / "library"
"""The blocks that come with the compiler: `import "library/losses.nacre"`, unless the model has such a file itself."""
OPTIMIZERS = "optimizers.nacre"
DIM_LIMIT = 1 << 40


@dataclass(slots=True)
class Loader:
    """Reads each file once. `stack` holds the files in progress, to name a cycle."""

    context: Context
    files: dict[Path, FileScope] = field(default_factory=dict)
    stack: list[tuple[Path, str]] = field(default_factory=list)

    def load(self, tree: syntax.File, name: str, folder: Path | None, path: Path | None) -> FileScope:
        """Returns the scope of a parsed file, with everything that it imports."""
        scope = FileScope(name, folder, tree)
        if path is not None:
            self.files[path] = scope
            self.stack.append((path, name))
        for item in tree.items:
            self._declare(scope, item)
        for item in tree.items:
            self._evaluate(scope, item)
        if path is not None:
            self.stack.pop()
        return scope

    def load_library(self, file: str) -> FileScope:
        """Returns a file of the library."""
        path = LIBRARY / file
        if path in self.files:
            return self.files[path]
        text = normalise(decode(path.read_bytes(), path.name))
        name = f"{LIBRARY.name}/{file}"
        self.context.reporter.sources[name] = text
        return self.load(parse(text, name), name, path.parent, path)

    def _bind(self, scope: FileScope, name: syntax.Name, value: AnyValue, kind: Kind) -> None:
        first = scope.names.get(name.name)
        if first is not None and first.span != name.span:
            note = Note(f"the first one is {first.kind}", first.span)
            message = f"`{name.name}` is defined twice"
            self.context.reporter.error("duplicate-name", message, name.span, notes=[note])
            return
        scope.names[name.name] = Binding(value, kind, name.span)

    def _declare(self, scope: FileScope, item: syntax.Item) -> None:
        """Declares names that may be used before their definition."""
        if isinstance(item, syntax.Block):
            kind = Kind.MODEL if isinstance(item, syntax.Model) else Kind.BLOCK
            self._bind(scope, item.name, BlockValue(item, scope), kind)
        elif isinstance(item, syntax.Import):
            self._import(scope, item)

    def _import(self, scope: FileScope, item: syntax.Import) -> None:
        other = self._imported(scope, item)
        if item.name is not None:
            self._bind(scope, item.name, ERROR if other is ERROR else ModuleValue(other), Kind.IMPORT)
        elif other is ERROR:
            scope.lacks_blocks = True
        else:
            declared = _declared(scope.tree)
            for name, binding in other.names.items():
                if binding.kind is Kind.DIM and name not in declared and name not in scope.names:
                    scope.names[name] = binding  # one name is one dim in the whole program
                own = isinstance(binding.value, BlockValue) and binding.value.file is other
                if own and binding.kind is Kind.BLOCK:
                    self._bind(scope, syntax.Name(name, span=item.path.span), binding.value, Kind.BLOCK)

    def _imported(self, scope: FileScope, item: syntax.Import) -> FileScope | Poison:
        report = self.context.reporter.error
        found = read_file(self.context, scope, item.path, [LIBRARY.parent])
        if found is ERROR:
            return ERROR
        path = found[0].resolve()
        on_the_way = [name for other, name in self.stack if other == path]
        if on_the_way:
            names = [name for _, name in self.stack]
            cycle = " imports ".join([*names[names.index(on_the_way[0]) :], on_the_way[0]])
            return report("import-cycle", f"files import each other: {cycle}", item.path.span)
        if path in self.files:
            return self.files[path]
        if len(self.files) >= FILES:
            return report("too-large", f"the program has more than {FILES} files", item.path.span)
        name = str(Path(scope.name).parent / item.path.value)
        try:
            text = normalise(decode(found[1], name))
            self.context.reporter.sources[name] = text
            tree = parse(text, name)
        except DiagnosticError as error:
            self.context.reporter.sources.update(error.sources)
            for diagnostic in error.diagnostics:
                self.context.reporter.add(diagnostic)
            return ERROR
        return self.load(tree, name, path.parent, path)

    def _evaluate(self, scope: FileScope, item: syntax.Item) -> None:
        frame = Frame(scope)
        if isinstance(item, syntax.Config):
            self._bind(scope, item.name, load_config(self.context, scope, item), Kind.CONFIG)
        elif isinstance(item, syntax.Dim):
            self._bind(scope, item.name, self._dim(frame, item), Kind.DIM)
        elif isinstance(item, syntax.Assign):
            value = self.context.evaluate(item.value, frame)
            if contains_tensor(value):
                message = "a constant of a file is a number, a text or a tuple, not a tensor"
                value = self.context.reporter.error("not-constant", message, item.value.span)
            values = _unpack(self.context, item, value)
            for target, part in zip(item.targets, values, strict=True):
                self._bind(scope, target, part, Kind.CONSTANT)

    def _dim(self, frame: Frame, item: syntax.Dim) -> AnyValue:
        report = self.context.reporter.error
        parts = []
        nodes = ((item.low, "the least size"), (item.high, "the greatest size"), (item.multiple, "the factor"))
        for node, what in nodes:
            value = 1 if node is None else self.context.evaluate(node, frame)
            parts.append(demand_integer(self.context, value, item.span if node is None else node.span, what))
        low, high, multiple = parts
        if low is ERROR or high is ERROR or multiple is ERROR:
            return ERROR
        if not 0 <= low <= high <= DIM_LIMIT:
            message = f"`{item.name.name}` has no range {low}..{high}"
            return report("bad-range", message, item.low.span.to(item.high.span), "expected 0 <= low <= high <= 2**40")
        if multiple < 1 or -(-low // multiple) > high // multiple:
            assert item.multiple is not None
            message = f"no size in {low}..{high} is a multiple of {multiple}"
            return report("bad-range", message, item.multiple.span)
        symbol = Symbol(item.name.name, low, high, multiple)
        if item.name.name in frame.file.names:  # defined twice in this file, which has been reported
            return symbol.size
        first = self.context.program.dims.setdefault(symbol.name, (symbol, item.name.span))
        if first[0] != symbol:
            note = Note(f"elsewhere it is `{first[0]}`", first[1])
            message = f"`{symbol.name}` refers to two different dims"
            return report("dim-conflict", message, item.name.span, f"`{symbol}` here", notes=[note])
        return symbol.size


def _unpack(context: Context, item: syntax.Assign, value: AnyValue) -> tuple[AnyValue, ...]:
    count = len(item.targets)
    if count == 1:
        return (value,)
    if isinstance(value, tuple) and len(value) == count:
        return value
    if value is not ERROR:
        context.reporter.error(
            "wrong-targets", f"{count} names on the left, but a different number of values", item.span
        )
    return (ERROR,) * count


def _declared(tree: syntax.File) -> set[str]:
    """Returns the names that a file itself gives to dims, constants, configurations, blocks and files."""
    found: set[str] = set()
    for item in tree.items:
        if isinstance(item, syntax.Assign):
            found |= {target.name for target in item.targets}
        elif isinstance(item, syntax.Dim | syntax.Config | syntax.Block | syntax.Import) and item.name is not None:
            found.add(item.name.name)
    return found


def own_models(scope: FileScope) -> list[syntax.Model]:
    return [item for item in scope.tree.items if isinstance(item, syntax.Model)]
