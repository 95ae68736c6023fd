"""A graph as DOT text, the language of Graphviz: a cluster for each unfolded box, a node for each other box."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .placement import Unfolded
from .tree import Body, Item


@dataclass
class _Writer:
    unfolded: Unfolded
    names: dict[tuple[str, ...], str] = field(default_factory=dict)

    def body(self, body: Body, path: tuple[str, ...], indent: str) -> Iterator[str]:
        for item in body.items:
            yield from self.item(item, (*path, item.key), indent)
        for source, target in body.edges:
            ends = [self.end(body.items[n], (*path, body.items[n].key), n == source) for n in (source, target)]
            around = ", ".join(f"{key}={name}" for key, (_, name) in zip(("ltail", "lhead"), ends, strict=True) if name)
            yield f"{indent}{ends[0][0]} -> {ends[1][0]}" + (f" [{around}]" if around else "")

    def item(self, item: Item, path: tuple[str, ...], indent: str) -> Iterator[str]:
        name = self.names.setdefault(path, f"n{len(self.names)}")
        if item.body is not None and item.body.items and self.unfolded(path, item):
            yield f"{indent}subgraph cluster_{name} {{"
            yield f"{indent}  label={_quote(*filter(None, (item.caption, item.title)))}"
            yield from self.body(item.body, path, indent + "  ")
            yield f"{indent}}}"
        else:
            shape = {"input": "plaintext", "result": "plaintext", "node": "box"}.get(item.role, "box3d")
            text = _quote(*filter(None, (item.caption, item.title, *item.lines)))
            yield f"{indent}{name} [shape={shape}, label={text}]"

    def end(self, item: Item, path: tuple[str, ...], leaves: bool) -> tuple[str, str]:
        """Returns the node at which an edge ends, and the cluster whose border clips it, if the box is unfolded."""
        if item.body is None or not item.body.items or not self.unfolded(path, item):
            return self.names[path], ""
        inner = item.body.items[-1 if leaves else 0]
        return self.end(inner, (*path, inner.key), leaves)[0], f"cluster_{self.names[path]}"


def _quote(*lines: str) -> str:
    return '"' + "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines) + '"'


def format_dot(body: Body, unfolded: Unfolded, title: str) -> str:
    lines = [
        f"digraph {_quote(title)} {{",
        "  compound=true",
        '  node [fontname="monospace", fontsize=10]',
        *_Writer(unfolded).body(body, (), "  "),
        "}",
    ]
    return "\n".join(lines) + "\n"
