"""Random programs of the language, correct and laid out as badly as the grammar allows, and random damage to programs.

Every comment has a number of its own, so that a test can see whether one is lost.
"""

from __future__ import annotations

import random
import re

NAMES = ["x", "y", "weight", "file", "transpose", "model", "block", "state", "T", "within", "width"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "@", "==", "!=", "<", "<=", ">", ">=", "and", "or"]
ATOMS = ["1", "64", "1.5", ".5", "2.", "1e-5", "3E+4", '"b t -> t b"', r'"\" #"', "true", "false", "None"]


class RandomSource:
    def __init__(self, choice: random.Random, width: int = 1) -> None:
        self.random = choice
        self.width = width  # 1 for short programs, more for long lines
        self.comments = 0
        self.depth = 0

    # --- layout ---

    def comment(self) -> str:
        self.comments += 1
        return self.random.choice(["# note {}", "#note {}", "#  note {} x |> f(", "#: note {}  "]).format(self.comments)

    def gap(self, inside: bool) -> str:
        """What may stand between two tokens; newlines only where `inside` brackets."""
        if inside and self.random.random() < 0.1:
            return self.random.choice(
                ["\n", "\n\n\t", f" {self.comment()}\n", f"\n {self.comment()}\n\n {self.comment()}\n"]
            )
        return self.random.choice(["", " ", " ", "   ", "\t"])

    def space(self, inside: bool) -> str:
        return self.gap(inside) or " "

    def before_operator(self, inside: bool) -> str:
        """A line may always begin with an operator."""
        return self.space(inside or self.random.random() < 0.3)

    def newline(self) -> str:
        end = self.random.choice(["\n", "\n", "\n\n\n", " ;", f" {self.comment()}\n", f"\n  {self.comment()}\n\n"])
        return self.space(False) + end + self.space(False)

    def listed(self, items: list[str], inside: bool = True, trailing: bool = True) -> str:
        text = "".join(f"{self.gap(inside)}{item}{self.gap(inside)}," for item in items)
        if items and not (trailing and self.random.random() < 0.2):
            text = text[:-1]
        return text + self.gap(inside)

    def some(self, low: int, high: int) -> range:
        return range(self.random.randint(low, high) * (self.width if low else 1))

    # --- expressions ---

    def name(self) -> str:
        return self.random.choice(NAMES)

    def expression(self, inside: bool = False) -> str:
        self.depth += 1
        forms = [self.atom] if self.depth > 4 else [self.atom, self.binary, self.binary, self.call, self.other]
        text = self.random.choice(forms)(inside)
        self.depth -= 1
        return text

    def atom(self, inside: bool) -> str:
        return self.random.choice([*ATOMS, *(self.name() for _ in ATOMS)])

    def operand(self, inside: bool) -> str:
        """Something that may stand beside any operator."""
        text = self.expression(inside=True)
        return f"({self.gap(True)}{text}{self.gap(True)})" if self.random.random() < 0.8 else self.atom(inside)

    def binary(self, inside: bool) -> str:
        operator = self.random.choice(BINARY)
        left, right = self.operand(inside), self.operand(inside)
        sign = self.random.choice(["", "", "-", "- -"])
        return f"{left}{self.before_operator(inside)}{operator}{self.space(inside)}{sign}{right}"

    def arguments(self) -> str:
        names = self.random.sample(["axis", "dim", "h", "from", "block"], 2)
        values = [self.expression(True) for _ in self.some(0, 3)]
        named = [f"{name}{self.gap(True)}={self.gap(True)}{self.expression(True)}" for name in names[: len(values)]]
        return self.listed(values + named) if values else self.gap(True)

    def call(self, inside: bool) -> str:
        target = self.random.choice([self.name(), "module.f", "layer[i]", "Block<2*n, k=-1>", "f<n>"])
        return f"{target}({self.arguments()})"

    def index_item(self) -> str:
        part = self.random.choice(["", self.expression(True)])
        return self.random.choice(["None", "...", ":", f"{part}:-1", f"1:{part}", f"{part}::2", self.expression(True)])

    def other(self, inside: bool) -> str:
        match self.random.randrange(7):
            case 0:
                return f"{self.name()}[{self.listed([self.index_item() for _ in self.some(1, 3)])}]"
            case 1:
                return f"({self.listed([self.expression(True) for _ in self.some(2, 3)])})"
            case 2:
                return self.random.choice([f"({self.expression(True)},)", "()", "(x,)", "[]"])
            case 3:
                return f"[{self.listed([self.expression(True) for _ in self.some(1, 3)])}]"
            case 4:
                return f"({self.operand(True)} if{self.space(True)}{self.operand(True)} else {self.operand(True)})"
            case 5:
                return f"not {self.operand(inside)}"
            case _:
                stages = "".join(
                    f"{self.before_operator(True)}|>{self.gap(inside)}{self.call(inside)}" for _ in self.some(1, 3)
                )
                return f"({self.operand(True)}{stages})"

    def pipe(self) -> str:
        stages = "".join(f"{self.before_operator(False)}|>{self.gap(False)}{self.call(False)}" for _ in self.some(0, 2))
        return self.operand(False) + stages

    def type(self) -> str:
        dims = [self.random.choice(["...", "4*width", "B", "1", self.expression(True)]) for _ in self.some(1, 3)]
        return self.random.choice(["f32", "f32[]", f"f32[{self.listed(dims)}]", "q8[block 32][n, k]", "q4 [ block n ]"])

    # --- statements and items ---

    def statement(self) -> str:
        forms = ["assign", "assign", "return", "param", "use", "repeat", "weights", "pair"]
        match self.random.choice(forms[: 4 if self.depth > 2 else None]):
            case "assign":
                value = self.random.choice([self.pipe, self.expression])()
                return f"{self.name()}{self.gap(False)}={self.gap(False)}{value}"
            case "pair":
                return f"a{self.gap(False)},{self.name()}={self.random.choice(['split(x, 2)', 'b, a'])}"
            case "return":
                return "return " + self.listed(
                    [self.expression() for _ in self.some(1, 2)], inside=False, trailing=False
                )
            case "param":
                origin = self.random.choice(["", ' from "h.{i}.w"', ' from"w"transpose', " transpose 1 ,0"])
                return f"param {self.name()}{self.gap(False)}:{self.gap(False)}{self.type()}{origin}"
            case "use":
                instances = self.listed(["query", "layer [ n +1 ]", "x"], inside=False, trailing=False)
                hypers = f"<{self.listed(['2*n', 'width', 'k=-1'])}>" if self.random.random() < 0.7 else ""
                return f"use {instances}={self.gap(False)}module.Block{hypers}"
            case "repeat":
                start, stop = f"{self.space(False)}0{self.gap(False)}", f"{self.gap(False)}{self.operand(False)}"
                return f"repeat i in{start}..{stop} {self.body()}"
            case _:
                return 'weights"model.safetensors"'

    def body(self, forms: list[str] | None = None) -> str:
        self.depth += 1
        count = self.some(0, 3)
        lines = forms if forms is not None else [self.statement() for _ in count]
        self.depth -= 1
        opening = self.random.choice([" ", "", f" {self.comment()}\n", "\n\n", f"\n{self.comment()}\n"])
        ending = self.random.choice([" ", "\n", f" {self.comment()}\n"])
        separated = "".join(self.newline() + line if n else line for n, line in enumerate(lines))
        return "{" + opening + separated + ending + "}"

    def item(self) -> str:
        match self.random.choice(["block", "block", "model", "dim", "import", "config", "test", "budget", "constant"]):
            case "dim":
                multiple = self.random.choice(["", " multiple 8", " multiple (8*n)"])
                return f"dim B in 1{self.gap(False)}..{self.gap(False)}2*64{multiple}"
            case "import":
                return 'import"attention.nacre"' + self.random.choice(["", "as attention"])
            case "config":
                return 'config "config.json"as c'
            case "constant":
                return f"heads={self.expression()}"
            case "test":
                given = 'given x=file"ids.npy" , mask = ' + self.expression()
                within = self.random.choice(["", "within 1E-5", "within(1e-5)", "signed", "within 1E-5 signed"])
                expects = [f'expect file "y.npy" {within}', f"expect y={self.operand(False)} {within}", "expect(-x)"]
                return f'test embed "two sentences"{self.body([given, *expects])}'
            case "budget":
                limits = ["memory(B=1,T=128)<=8MiB", "latency< 1.5 ms", "kernels () <= 12"]
                return f"budget embed{self.gap(False)}{self.body(limits)}"
            case word:
                hypers = self.random.choice(["", f"<{self.listed(['n', 'k=4', 'width = 2*n'])}>"])
                inputs = self.listed([f"{self.name()}:{self.gap(True)}{self.type()}" for _ in self.some(0, 2)])
                inputs = inputs if ":" in inputs else self.gap(True)
                results = self.listed([self.type(), "y :f32[n]"][: self.random.randint(1, 2)], False, False)
                return f"{word} {self.name()}{hypers}({inputs})->{results}{self.body()}"

    def file(self) -> str:
        start = self.random.choice(["", "\n\n", "# first\n\n", "language 1\n", "\ufefflanguage 1 # x\n"])
        items = "".join(self.newline() + self.item() for _ in self.some(1, 4))
        text = start + items.lstrip(" \t;") + self.random.choice(["", "\n", "\n\n# last"])
        return text.replace("\n", "\r\n") if self.random.random() < 0.1 else text


def damage_tokens(text: str, choice: random.Random, times: int) -> str:
    parts = re.findall(r"\w+|\s+|[^\w\s]", text)
    for _ in range(times):
        at, other = choice.randrange(len(parts)), choice.randrange(len(parts))
        match choice.randrange(4):
            case 0:
                parts[at] = parts[other]
            case 1:
                del parts[at]
                parts.append(" ")
            case 2:
                parts.insert(
                    at,
                    choice.choice([*"(){}[]<>=.,;:\"'#\n", "|>", "..", "é", "\0", "0x1", "9" * 30, "repeat ", "grad{"]),
                )
            case _:
                parts[at], parts[other] = parts[other], parts[at]
    return "".join(parts)


def damage_bytes(data: bytes, choice: random.Random, times: int) -> bytes:
    damaged = bytearray(data)
    for _ in range(times):
        at = choice.randrange(len(damaged))
        match choice.randrange(3):
            case 0:
                damaged[at] = choice.randrange(256)
            case 1:
                del damaged[at : at + choice.randint(1, 9)]
                damaged += b"\n"
            case _:
                damaged.insert(at, choice.randrange(32, 127))
    return bytes(damaged)
