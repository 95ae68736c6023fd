"""Builds the syntax tree from lark's tree: one function per rule of the grammar, and the rules a grammar cannot state.

These are: the language's version, the order and uniqueness of arguments, the valid targets of a pipe, the units of
budgets, and the nesting limit of expressions. No name is looked up here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import TypeVar, cast

from lark import Token, Tree

from ....dialect.diagnostics import Collector, Diagnostic, DiagnosticError, Note, Span
from ....dialect.types import BLOCK_WORDS
from ...model.units import UNITS
from . import syntax
from .tokens import span_of, string_value

LANGUAGE_VERSION = 1
MAX_DEPTH = 100  # of an expression; code that walks a tree may recurse

Part = Tree[Token] | Token
T = TypeVar("T")


def build(tree: Tree[Token], file: str, collector: Collector) -> syntax.File:
    return _Builder(file, collector).file(tree)


class _Builder:
    def __init__(self, file: str, collector: Collector) -> None:
        self.path = file
        self.collector = collector
        self.depth = 0
        self.expressions: dict[str, Callable[[Tree[Token]], syntax.Expression]] = {
            "reference": self.reference,
            "integer": self.integer,
            "float": lambda t: syntax.Float(float(_token(t, 0)), span=self.span(t)),
            "string": lambda t: self.string(_token(t, 0)),
            "true": lambda t: syntax.Boolean(True, span=self.span(t)),
            "false": lambda t: syntax.Boolean(False, span=self.span(t)),
            "nothing": lambda t: syntax.Nothing(span=self.span(t)),
            "unary": self.unary,
            "binary": self.binary,
            "conditional": self.conditional,
            "call": self.call,
            "attribute": self.attribute,
            "index": self.index,
            "block_dtype": self.block_dtype,
            "pipe": self.pipe,
            "list": lambda t: syntax.List(self.all(t.children), span=self.span(t)),
            "tuple": lambda t: syntax.Tuple(self.all(t.children), span=self.span(t)),
            "comprehension": self.comprehension,
            "scan": self.scan,
            "repeat": self.repeat,
            "if": self.if_,
            "reduction": self.reduction,
        }
        self.statements: dict[str, Callable[[Tree[Token]], syntax.Statement]] = {
            "use": self.use,
            "weights": self.weights,
            "assign": self.assign,
            "assign_part": self.assign_part,
            "repeat": self.repeat,
            "scan": self.scan,
            "while": self.while_,
            "minimize": self.minimize,
            "grad": self.grad,
            "return": lambda t: syntax.Return(self.all(t.children), span=self.span(t)),
        }
        self.policy_lines: dict[str, Callable[[Tree[Token]], syntax.PolicyLine]] = {
            "rule": self.rule,
            "keep": lambda t: syntax.Keep(self.selector(t.children[0]), span=self.span(t)),
            "calibrate": self.calibrate,
            "require": self.require,
        }
        self.items: dict[str, Callable[[Tree[Token]], syntax.Item]] = {
            "config": self.config,
            "dim": self.dim,
            "import": self.import_,
            "assign": self.assign,
            "block": self.block,
            "model": self.block,
            "train": self.block,
            "test": self.test,
            "budget": self.budget,
            "quantize": self.quantize,
        }

    # --- shared ---

    def span(self, part: Part) -> Span:
        if isinstance(part, Token):
            return span_of(part, self.path)
        meta = part.meta
        return Span(self.path, meta.line, meta.column, meta.end_line, meta.end_column)

    def report(self, code: str, message: str, span: Span, help_text: str = "", notes: tuple[Note, ...] = ()) -> None:
        self.collector.report(Diagnostic(code, message, span, notes=notes, help=help_text))

    def name(self, part: Part) -> syntax.Name:
        """Reads a name from a NAME token or a `name` tree around one."""
        token = part if isinstance(part, Token) else _token(part, 0)
        return syntax.Name(str(token), span=self.span(token))

    def string(self, token: Token) -> syntax.String:
        return syntax.String(string_value(token), span=self.span(token))

    def integer_token(self, token: Token) -> syntax.Integer:
        return syntax.Integer(_int(token), span=self.span(token))

    # --- file and items ---

    def file(self, tree: Tree[Token]) -> syntax.File:
        language: int | None = None
        items: list[syntax.Item] = []
        for position, part in enumerate(_trees(tree)):
            if part.data == "language":
                language = self.language(part, position)
            else:
                items.append(self.items[part.data](part))
        span = self.span(tree) if not tree.meta.empty else Span(self.path, 1, 1, 1, 1)
        return syntax.File(language, tuple(items), span=span)

    def language(self, tree: Tree[Token], position: int) -> int:
        version = _int(_token(tree, 0))
        if version != LANGUAGE_VERSION:
            known = f"this compiler reads `language {LANGUAGE_VERSION}`"
            message = f"version {version} of the language is not known"
            self.report("language-version", message, self.span(tree.children[0]), known)
        if position:
            message = "`language` must be the first item of a file and occur only once"
            self.report("language-version", message, self.span(tree))
        return version

    def config(self, tree: Tree[Token]) -> syntax.Config:
        return syntax.Config(self.string(_token(tree, 0)), self.name(tree.children[1]), span=self.span(tree))

    def dim(self, tree: Tree[Token]) -> syntax.Dim:
        name, range_, *multiple = tree.children
        low, high = self.all(_as_tree(range_).children)
        factor = self.expression(multiple[0]) if multiple else None
        return syntax.Dim(self.name(name), low, high, factor, span=self.span(tree))

    def import_(self, tree: Tree[Token]) -> syntax.Import:
        name = self.name(tree.children[1]) if len(tree.children) > 1 else None
        return syntax.Import(self.string(_token(tree, 0)), name, span=self.span(tree))

    def block(self, tree: Tree[Token]) -> syntax.Block:
        name, hypers, parameters, results, body = tree.children
        kind = {"model": syntax.Model, "train": syntax.Train}.get(tree.data, syntax.Block)
        return kind(
            self.name(name),
            tuple(self.hyper_parameter(part) for part in _trees(hypers)),
            tuple(self.parameter(part) for part in _trees(parameters)),
            tuple(self.result(part) for part in _trees(results)),
            self.body(body),
            span=self.span(tree).to(self.span(results)),
        )

    def hyper_parameter(self, tree: Tree[Token]) -> syntax.HyperParameter:
        default = self.expression(tree.children[1]) if len(tree.children) > 1 else None
        return syntax.HyperParameter(self.name(tree.children[0]), default, span=self.span(tree))

    def parameter(self, tree: Tree[Token]) -> syntax.Parameter:
        return syntax.Parameter(self.name(tree.children[0]), self.type(tree.children[1]), span=self.span(tree))

    def result(self, tree: Tree[Token]) -> syntax.Result:
        *name, type_ = tree.children
        return syntax.Result(self.type(type_), self.name(name[0]) if name else None, span=self.span(tree))

    def test(self, tree: Tree[Token]) -> syntax.Test:
        model, title, *lines = tree.children
        title = cast(Token, title)
        givens = tuple(self.given(part) for part in lines if _as_tree(part).data == "given")
        expects = tuple(self.expect(part) for part in lines if _as_tree(part).data == "expect")
        span = self.span(tree).to(self.span(title))
        return syntax.Test(self.name(model), self.string(title), givens, expects, span=span)

    def given(self, part: Part) -> syntax.Given:
        name, value = _as_tree(part).children
        return syntax.Given(self.name(name), self.data(value), span=self.span(part))

    def expect(self, part: Part) -> syntax.Expect:
        children = list(_trees(part))
        signed = children[-1].data == "signed"
        children = children[: len(children) - signed]
        within = self.expression(children.pop().children[0]) if children[-1].data == "within" else None
        name = self.name(children[0]) if len(children) > 1 else None
        return syntax.Expect(self.data(children[-1]), name, within, signed, span=self.span(part))

    def data(self, part: Part) -> syntax.Expression | syntax.FileData:
        tree = _as_tree(part)
        return self.file_data(tree) if tree.data == "file_data" else self.expression(tree)

    def file_data(self, part: Part) -> syntax.FileData:
        return syntax.FileData(self.string(_token(_as_tree(part), 0)), span=self.span(part))

    def budget(self, tree: Tree[Token]) -> syntax.Budget:
        model, *limits = tree.children
        span = self.span(tree).to(self.span(model))
        return syntax.Budget(self.name(model), tuple(self.limit(part) for part in limits), span=span)

    def limit(self, part: Part) -> syntax.Limit:
        metric, *middle, comparison, quantity = _as_tree(part).children
        arguments = self.arguments(middle[1]) if middle else ()
        amount = self.quantity(_as_tree(quantity))
        return syntax.Limit(self.name(metric), arguments, str(comparison), amount, span=self.span(part))

    def quantity(self, tree: Tree[Token]) -> syntax.Quantity:
        number, *unit = cast(list[Token], tree.children)
        value = _number(number)
        word = str(unit[0]) if unit else ""
        if word and word not in UNITS:
            near = get_close_matches(word.lower(), {u.lower(): u for u in UNITS}, 1)
            known = [u for u in UNITS if near and u.lower() == near[0]] or list(UNITS)
            help_text = f"did you mean `{known[-1]}`?" if near else f"the units are {', '.join(known)}"
            self.report("unknown-unit", f"`{word}` is not a unit", self.span(unit[0]), help_text)
        return syntax.Quantity(value, word, span=self.span(tree))

    def quantize(self, tree: Tree[Token]) -> syntax.Quantize:
        model, *lines = _trees(tree)
        span = self.span(tree).to(self.span(model))
        return syntax.Quantize(self.name(model), tuple(self.policy_lines[t.data](t) for t in lines), span=span)

    def rule(self, tree: Tree[Token]) -> syntax.Rule:
        subject, selector, _, scheme = tree.children
        dtype, *scale = _trees(scheme)
        word, *block = _trees(dtype)
        text = self.name(word).name
        if block:
            size, *zero = block
            text += f"[block {self.integer(size).value}{''.join(f', {self.name(z).name}' for z in zero)}]"
        made = syntax.Scheme(text, self.name(scale[0]) if scale else None, span=self.span(scheme))
        return syntax.Rule(str(subject), self.selector(selector), made, span=self.span(tree))

    def selector(self, part: Part) -> syntax.String | syntax.Name:
        return self.string(part) if isinstance(part, Token) else self.name(part)

    def calibrate(self, tree: Tree[Token]) -> syntax.Calibrate:
        data, *rest = tree.children
        method = self.name(rest[0]) if rest else None
        number = _number(cast(Token, rest[1])) if len(rest) > 1 else None
        return syntax.Calibrate(self.file_data(data), method, number, span=self.span(tree))

    def require(self, tree: Tree[Token]) -> syntax.Require:
        _, words, comparison, limit, _, data = tree.children
        names = [self.name(word) for word in _as_tree(words).children]
        figure = syntax.Name(" ".join(name.name for name in names), span=names[0].span.to(names[-1].span))
        number = _number(cast(Token, limit))
        return syntax.Require(figure, str(comparison), number, self.file_data(data), span=self.span(tree))

    # --- types ---

    def type(self, part: Part) -> syntax.Type:
        tree = _as_tree(part)
        name, *rest = tree.children
        if tree.data == "quantised_type":
            word = [part for part in rest[1:2] if _as_tree(part).data == "block_word"]
            dtype = self.blocks(self.name(name), [rest.pop(0), *word])
            del rest[: len(word)]
        else:
            dtype = syntax.Dtype(self.name(name).name, span=self.span(name))
        return syntax.Type(dtype, tuple(self.dots_or(part) for part in rest), span=self.span(tree))

    def blocks(self, name: syntax.Name, parts: Sequence[Part]) -> syntax.Dtype:
        """Returns the named dtype in blocks: the block size, optionally followed by a word for their values."""
        size, *others = parts
        block = self.expression(size)
        assert isinstance(block, syntax.Integer | syntax.Name), block
        span = name.span.to(self.span(parts[-1]))
        accepted = BLOCK_WORDS.get(name.name, BLOCK_WORDS["q4"])
        word = ""
        for given in (self.name(_as_tree(part).children[0]) for part in others):
            word = given.name if given.name in accepted else accepted[0]
            if word != given.name:
                message = f"blocks of `{name.name}` have no values `{given.name}`"
                forms = [f"`{name.name}[block 32, {each}]`" for each in accepted]
                self.report("bad-block", message, given.span, " or ".join(forms))
        return syntax.Dtype(name.name, block, word, span=span)

    def block_dtype(self, tree: Tree[Token]) -> syntax.Expression:
        name, *parts = tree.children
        target = self.expression(name)
        if isinstance(target, syntax.Name):
            return syntax.BlockDtype(self.blocks(target, parts), span=self.span(tree))
        self.report("bad-block", "only a dtype can have a block size", self.span(tree), "`q8[block 32]`")
        return target

    def dots_or(self, part: Part) -> syntax.Expression | syntax.Dots:
        if _as_tree(part).data == "dots":
            return syntax.Dots(span=self.span(part))
        return self.expression(part)

    # --- statements ---

    def body(self, part: Part) -> tuple[syntax.Statement, ...]:
        return self.statements_of(_trees(part))

    def statements_of(self, trees: Iterable[Tree[Token]]) -> tuple[syntax.Statement, ...]:
        """Returns the statements; a declaration of several names becomes one statement for each name."""
        made: list[syntax.Statement] = []
        for tree in trees:
            if tree.data in ("param", "state"):
                names = [part for part in _trees(tree) if part.data == "name"]
                declare = self.param if tree.data == "param" else self.state
                made += (declare(name, tree, self.span(name if len(names) > 1 else tree)) for name in names)
            else:
                made.append(self.statements[tree.data](tree))
        return tuple(made)

    def declared(self, tree: Tree[Token]) -> tuple[Tree[Token], list[Tree[Token]]]:
        """Returns the type of a declaration and the parts after it."""
        type_, *rest = (part for part in _trees(tree) if part.data != "name")
        return type_, rest

    def param(self, name: Tree[Token], tree: Tree[Token], span: Span) -> syntax.Param:
        type_, rest = self.declared(tree)
        key: syntax.String | None = None
        transpose: tuple[syntax.Integer, ...] | None = None
        condition: syntax.Expression | None = None
        initial: syntax.Expression | None = None
        for part in rest:
            if part.data == "key":
                key = self.key(part, span, tree)
            elif part.data == "condition":
                condition = self.expression(part.children[0])
            elif part.data == "initial":
                initial = self.expression(part.children[0])
            else:
                transpose = tuple(self.integer_token(cast(Token, axis)) for axis in part.children)
        return syntax.Param(self.name(name), self.type(type_), key, transpose, condition, initial, span=span)

    def state(self, name: Tree[Token], tree: Tree[Token], span: Span) -> syntax.State:
        type_, rest = self.declared(tree)
        initial: syntax.Expression | None = None
        key: syntax.String | None = None
        for part in rest:
            if part.data == "key":
                key = self.key(part, span, tree)
            else:
                initial = self.expression(part.children[0])
        return syntax.State(self.name(name), self.type(type_), initial, key, span=span)

    def key(self, part: Tree[Token], span: Span, declaration: Tree[Token]) -> syntax.String:
        """Returns the key of a parameter or a state; `span` is that of its statement, or of one name of several."""
        key = self.string(_token(part, 0))
        names = [self.span(each) for each in _trees(declaration) if each.data == "name"]
        if span == names[-1]:
            message = f"one key is given for {len(names)} names"
            self.report("bad-key", message, key.span, "a statement for each name can state its key")
        return key

    def use(self, tree: Tree[Token]) -> syntax.Use:
        instances = [part for part in _trees(tree) if part.data == "instance"]
        block, *rest = (part for part in _trees(tree) if part.data != "instance")
        condition = self.expression(rest[0].children[0]) if rest else None
        otherwise = self.block_reference(_as_tree(rest[1].children[0])) if len(rest) > 1 else None
        return syntax.Use(
            tuple(self.instance(part) for part in instances),
            self.block_reference(block),
            condition,
            otherwise,
            span=self.span(tree),
        )

    def block_reference(self, tree: Tree[Token]) -> syntax.BlockReference:
        path, *hypers = _trees(tree)
        return syntax.BlockReference(
            tuple(self.name(part) for part in path.children),
            self.arguments(hypers[0]) if hypers else None,
            span=self.span(tree),
        )

    def weights(self, tree: Tree[Token]) -> syntax.Weights:
        path, *prefix = tree.children
        start = self.string(_token(_as_tree(prefix[0]), 0)) if prefix else None
        return syntax.Weights(self.string(cast(Token, path)), start, span=self.span(tree))

    def instance(self, tree: Tree[Token]) -> syntax.Instance:
        name, *rest = _trees(tree)
        if len(rest) > 1:
            start, stop = (self.expression(part) for part in rest[1].children)
            return syntax.Instance(self.name(name), stop, self.name(rest[0]), start, span=self.span(tree))
        count = self.expression(tree.children[1]) if rest else None
        return syntax.Instance(self.name(name), count, span=self.span(tree))

    def assign(self, tree: Tree[Token]) -> syntax.Assign:
        targets, *values = tree.children
        names = tuple(self.name(part) for part in _as_tree(targets).children)
        value = self.expression(values[0])
        if len(values) > 1:
            value = syntax.Tuple(self.all(values), span=self.span(values[0]).to(self.span(values[-1])))
        return syntax.Assign(names, value, span=self.span(tree))

    def assign_part(self, tree: Tree[Token]) -> syntax.AssignPart:
        name, *items, value = tree.children
        target = self.span(name).to(self.span(items[-1]))
        return syntax.AssignPart(
            self.name(name),
            tuple(self.index_item(_as_tree(item)) for item in items),
            self.expression(value),
            target=target,
            span=self.span(tree),
        )

    def repeat(self, tree: Tree[Token]) -> syntax.Repeat:
        variable, elements, body, *collected = tree.children
        start, stop = self.elements(elements)
        return syntax.Repeat(
            self.name(variable),
            start,
            stop,
            self.body(body),
            self.all(_as_tree(collected[0]).children) if collected else (),
            span=self.span(tree),
        )

    def minimize(self, tree: Tree[Token]) -> syntax.Minimize:
        loss, update, *lines = _trees(tree)
        span = self.span(loss).to(self.span(update))
        return syntax.Minimize(self.name(loss), self.update(update), tuple(map(self.minimize_line, lines)), span=span)

    def reduction(self, tree: Tree[Token]) -> syntax.Reduction:
        word, *names, value = tree.children
        indices = tuple(self.name(name) for name in names)
        return syntax.Reduction(self.name(word), indices, self.expression(value), span=self.span(tree))

    def grad(self, tree: Tree[Token]) -> syntax.Grad:
        whole = self.span(tree)
        word = Span(whole.file, whole.line, whole.column, whole.line, whole.column + len("grad"))
        return syntax.Grad(self.body(tree.children[0]), span=word)

    def minimize_line(
        self, tree: Tree[Token]
    ) -> syntax.Group | syntax.Freeze | syntax.Clip | syntax.Accumulate | syntax.Exchange:
        if tree.data == "exchange":
            return syntax.Exchange(span=self.span(tree))
        if tree.data == "clip":
            return syntax.Clip(self.expression(tree.children[0]), span=self.span(tree))
        if tree.data == "accumulate":
            return syntax.Accumulate(self.expression(tree.children[0]), span=self.span(tree))
        patterns = tuple(self.string(cast(Token, part)) for part in _as_tree(tree.children[0]).children)
        if tree.data == "freeze":
            return syntax.Freeze(patterns, span=self.span(tree))
        return syntax.Group(patterns, self.update(_as_tree(tree.children[1])), span=self.span(tree))

    def update(self, tree: Tree[Token]) -> syntax.Update:
        path, *hypers, arguments = _trees(tree)
        names = tuple(self.name(part) for part in path.children)
        given = self.arguments(hypers[0]) if hypers else None
        block = syntax.BlockReference(names, given, span=self.span(tree))
        return syntax.Update(block, self.arguments(arguments), span=self.span(tree))

    def elements(self, part: Part) -> tuple[syntax.Expression, syntax.Expression | None]:
        """Returns the ends of a range, or the one expression that names the elements."""
        tree = _as_tree(part)
        if tree.data not in ("range", "elements_range"):
            return self.expression(tree), None
        start, stop = self.all(tree.children)
        return start, stop

    def comprehension(self, tree: Tree[Token]) -> syntax.Comprehension:
        value, variable, elements, *condition = tree.children
        start, stop = self.elements(elements)
        kept = self.expression(_as_tree(condition[0]).children[0]) if condition else None
        name = self.name(variable)
        return syntax.Comprehension(self.expression(value), name, start, stop, kept, span=self.span(tree))

    # --- loops and branches at run time ---

    def scan(self, tree: Tree[Token]) -> syntax.Scan:
        variable, range_, carried, body, *collected = tree.children
        start, stop = self.all(_as_tree(range_).children)
        end = self.span(carried) if _as_tree(carried).children else self.span(range_)
        return syntax.Scan(
            self.name(variable),
            start,
            stop,
            self.carried(carried),
            self.body(body),
            self.all(_as_tree(collected[0]).children) if collected else (),
            span=_between(self.span(tree), end),
        )

    def while_(self, tree: Tree[Token]) -> syntax.While:
        condition, carried, body = tree.children
        end = self.span(carried) if _as_tree(carried).children else self.span(condition)
        span = _between(self.span(tree), end)
        return syntax.While(self.expression(condition), self.carried(carried), self.body(body), span=span)

    def carried(self, part: Part) -> tuple[syntax.Carry, ...]:
        return tuple(
            syntax.Carry(self.name(tree.children[0]), self.expression(tree.children[1]), span=self.span(tree))
            for tree in _trees(part)
        )

    def if_(self, tree: Tree[Token]) -> syntax.If:
        condition, *branches = tree.children
        then, otherwise = (self.choice(_as_tree(part)) for part in branches)
        return syntax.If(self.expression(condition), then, otherwise, span=self.span(condition))

    def choice(self, tree: Tree[Token]) -> syntax.Choice:
        if tree.data == "if":
            return syntax.Choice((), self.expression(tree), span=self.span(tree))
        lines = list(_trees(tree))
        value = lines.pop() if lines and lines[-1].data == "value" else None
        for line in lines:
            if line.data == "value":
                self.report("value-without-name", "only the last line of a branch is its value", self.span(line))
        body = self.statements_of(line for line in lines if line.data != "value")
        made = None if value is None else self.expression(value.children[0])
        return syntax.Choice(body, made, span=self.span(tree))

    # --- expressions ---

    def expression(self, part: Part) -> syntax.Expression:
        tree = _as_tree(part)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            message = f"expression nests deeper than {MAX_DEPTH} levels"
            self.report("too-deep", message, self.span(tree), "assign a part of it to a name")
            raise DiagnosticError(self.collector.diagnostics)
        result = self.expressions[tree.data](tree)
        self.depth -= 1
        return result

    def all(self, parts: Iterable[Part]) -> tuple[syntax.Expression, ...]:
        return tuple(self.expression(part) for part in parts)

    def reference(self, tree: Tree[Token]) -> syntax.Name:
        return self.name(tree.children[0])

    def integer(self, tree: Tree[Token]) -> syntax.Integer:
        return self.integer_token(_token(tree, 0))

    def unary(self, tree: Tree[Token]) -> syntax.Unary:
        return syntax.Unary(str(tree.children[0]), self.expression(tree.children[1]), span=self.span(tree))

    def binary(self, tree: Tree[Token]) -> syntax.Binary:
        left, operator, right = tree.children
        return syntax.Binary(
            str(operator),
            self.expression(left),
            self.expression(right),
            span=self.span(tree),
            operator_span=self.span(operator),
        )

    def conditional(self, tree: Tree[Token]) -> syntax.Conditional:
        then, condition, otherwise = self.all(tree.children)
        return syntax.Conditional(condition, then, otherwise, span=self.span(tree))

    def call(self, tree: Tree[Token]) -> syntax.Call:
        function, *hypers, arguments = tree.children
        return syntax.Call(
            self.expression(function),
            self.arguments(arguments),
            self.arguments(hypers[0]) if hypers else None,
            span=self.span(tree),
        )

    def arguments(self, part: Part) -> tuple[syntax.Argument, ...]:
        arguments = []
        seen: dict[str, Span] = {}
        for tree in _trees(part):
            *name, value = tree.children
            argument = syntax.Argument(
                self.expression(value), self.name(name[0]) if name else None, span=self.span(tree)
            )
            if argument.name is None and seen:
                message = "positional argument follows keyword argument"
                self.report("argument-order", message, argument.span, "positional arguments come first")
            elif argument.name is not None and argument.name.name in seen:
                text = argument.name.name
                notes = (Note("first given here", seen[text]),)
                self.report("duplicate-argument", f"argument `{text}` is given twice", argument.name.span, notes=notes)
            elif argument.name is not None:
                seen[argument.name.name] = argument.name.span
            arguments.append(argument)
        return tuple(arguments)

    def attribute(self, tree: Tree[Token]) -> syntax.Attribute:
        value, name = tree.children
        return syntax.Attribute(self.expression(value), self.name(name), span=self.span(tree))

    def index(self, tree: Tree[Token]) -> syntax.Index:
        value, *items = tree.children
        return syntax.Index(
            self.expression(value), tuple(self.index_item(_as_tree(item)) for item in items), span=self.span(tree)
        )

    def index_item(self, tree: Tree[Token]) -> syntax.Expression | syntax.Slice | syntax.Dots:
        if tree.data != "slice":
            return self.dots_or(tree)
        parts: list[syntax.Expression | None] = [None]
        for child in tree.children:
            if isinstance(child, Token):
                parts.append(None)
            else:
                parts[-1] = self.expression(child)
        return syntax.Slice(*parts, span=self.span(tree))

    def pipe(self, tree: Tree[Token]) -> syntax.Pipe:
        value, stage = tree.children
        call = self.expression(stage)
        if not isinstance(call, syntax.Call):
            if not isinstance(call, syntax.Name | syntax.Attribute | syntax.Index):
                message = "the right side of `|>` cannot be called"
                self.report(
                    "pipe-target", message, call.span, "`|>` takes a function or a call on its right side: `x |> f(a)`"
                )
            call = syntax.Call(call, span=call.span)
        return syntax.Pipe(self.expression(value), call, span=self.span(tree))


def _between(begin: Span, end: Span) -> Span:
    """Returns the span from the beginning of one to the end of another."""
    return Span(begin.file, begin.line, begin.column, end.end_line, end.end_column)


def _as_tree(part: Part) -> Tree[Token]:
    assert isinstance(part, Tree), part
    return part


def _trees(part: Part) -> Iterable[Tree[Token]]:
    return [_as_tree(child) for child in _as_tree(part).children]


def _token(tree: Tree[Token], position: int) -> Token:
    token = tree.children[position]
    assert isinstance(token, Token), tree
    return token


def _number(token: Token) -> int | float:
    return _int(token) if token.type == "INT" else float(token)


def _int(token: Token) -> int:
    # A number that is too long was reported; int() refuses some of these.
    return int(token) if len(token) <= 40 else 0
