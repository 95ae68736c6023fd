"""The language server, asked over the protocol by pygls's client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest
from editor import Editor, editor
from lsprotocol import types as protocol
from safetensors.numpy import save_file

LAYERS = """\
block Linear<inputs, outputs>(x: f32[..., inputs]) -> f32[..., outputs] {
  param weight: f32[outputs, inputs]
  return x @ weight.T
}
"""
MODEL = """\
import "layers.nacre"
dim B in 1..64

block Net<width>(x: f32[B, width]) -> f32[B, 10] {
  use first = Linear<width, outputs=32>
  use last = Linear<32, 10>
  hidden = relu(first(x))
  return softmax(last(hidden))
}

model classify(image: f32[B, 64]) -> f32[B, 10] {
  weights "model.safetensors"
  use net = Net<64>
  return net(image)
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "layers.nacre").write_text(LAYERS)
    (tmp_path / "model.nacre").write_text(MODEL)
    tensors = {"net.first.weight": np.ones((32, 64), "f4"), "net.last.weight": np.ones((10, 32), "f4")}
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path


def at(text: str, words: str, offset: int = 0) -> protocol.Position:
    """The place of the first of these words in a text."""
    before = text[: text.index(words) + offset]
    return protocol.Position(before.count("\n"), len(before) - before.rfind("\n") - 1)


def session(folder: Path, act: Callable[[Editor, str], Awaitable[None]], name: str = "model.nacre") -> None:
    """Runs a test in an editor that has one file open."""

    async def whole() -> None:
        async with editor(folder) as running:
            await act(running, await running.open(folder / name))

    asyncio.run(whole())


def test_diagnostics_follow_the_text(folder: Path) -> None:
    async def act(running: Editor, uri: str) -> None:
        assert running.diagnostics[uri] == []
        wrong = await running.type(uri, MODEL.replace("Net<64>", "Net<63>"))
        assert [d.code for d in wrong] == ["shape-mismatch"]
        assert wrong[0].range.start == at(MODEL, "image)", 0)
        assert wrong[0].severity == protocol.DiagnosticSeverity.Error
        more = MODEL.replace("relu(first(x))", "relu(first(x)) + more").replace(
            "= Linear<32, 10>", "= Linear<32, 10>\n  param more: f32[32]"
        )
        assert [d.code for d in await running.type(uri, more)] == ["missing-tensor"]
        unclosed = await running.type(uri, MODEL.replace("return net(image)", "return net(image"))
        assert [d.code for d in unclosed] == ["unclosed-bracket"]
        assert await running.type(uri, MODEL) == []

    session(folder, act)


def test_hover_shows_types_origins_and_costs(folder: Path) -> None:
    async def act(running: Editor, uri: str) -> None:
        hidden = (await running.ask("hover", uri, at(MODEL, "hidden ="))).contents.value
        assert "hidden: f32[B, 32]" in hidden
        assert "`B` is any of 1..64" in hidden
        assert "- `128*B` bytes" in hidden
        width = (await running.ask("hover", uri, at(MODEL, "width]) ->"))).contents.value
        assert "(hyper-parameter) width: 64" in width
        product = LAYERS.replace("\n}", "\n}\nmodel m(x: f32[4, 8]) -> f32[4, 6] { use f = Linear<8, 6>; return f(x) }")
        await running.type(uri, product)
        shown = (await running.ask("hover", uri, at(product, "@"))).contents.value
        assert "f32[4, 6]" in shown and "6 is `outputs`, given" in shown and "384 operations" in shown
        word = (await running.ask("hover", uri, at(product, "param"))).contents.value
        assert "checkpoint" in word

    session(folder, act)


def test_definitions_lead_to_names_files_and_checkpoints(folder: Path) -> None:
    async def act(running: Editor, uri: str) -> None:
        block = await running.ask("definition", uri, at(MODEL, "Linear<width"))
        assert block.uri == (folder / "layers.nacre").as_uri()
        assert block.range.start == at(LAYERS, "Linear")
        keyword = await running.ask("definition", uri, at(MODEL, "outputs=32"))
        assert keyword.range.start == at(LAYERS, "outputs>")
        instance = await running.ask("definition", uri, at(MODEL, "last(hidden"))
        assert (instance.uri, instance.range.start) == (uri, at(MODEL, "last ="))
        file = await running.ask("definition", uri, at(MODEL, "layers.nacre"))
        assert file.uri == (folder / "layers.nacre").as_uri()

    session(folder, act)

    async def in_model(running: Editor, uri: str) -> None:
        text = 'model m(x: f32[8]) -> f32[8] { weights "w.safetensors"; param scale: f32[8]; return x * scale }\n'
        save_file({"other": np.ones(3, "f4"), "scale": np.ones(8, "f4")}, folder / "w.safetensors")
        await running.type(uri, text)
        found = await running.ask("definition", uri, at(text, "scale"))
        listing = Path(found.uri.removeprefix("file://")).read_text().splitlines()
        assert listing[found.range.start.line].startswith("scale  f32[8]")

    session(folder, in_model)


def test_completion_depends_on_the_context(folder: Path) -> None:
    async def proposals(running: Editor, uri: str, text: str, marker: str) -> list[str]:
        place = at(text, marker)
        await running.type(uri, text.replace(marker, ""))
        return [item.label for item in (await running.ask("completion", uri, place)).items]

    async def act(running: Editor, uri: str) -> None:
        found = await proposals(running, uri, MODEL.replace("relu(first(x))", "re|lu(fi"), "|lu(fi")
        assert {"hidden", "first", "last", "x", "width", "B", "relu", "reshape", "Linear"} <= {*found, "hidden"}
        found = await proposals(running, uri, MODEL.replace("Linear<32, 10>", "|"), "|")
        assert "Linear" in found and "relu" not in found
        found = await proposals(running, uri, MODEL.replace("x: f32[B, width]", "x: |"), "|")
        assert "bf16" in found and "relu" not in found
        found = await proposals(running, uri, MODEL.replace("hidden = ", "hidden = first.|\n  other = "), "|")
        assert found == ["weight"]
        found = await proposals(running, uri, MODEL.replace("= Net<64>", '= Net<64>\n  param p: f32[3] from "|"'), "|")
        assert found == ["net.first.weight", "net.last.weight"]
        found = await proposals(running, uri, MODEL + "\n|", "|")
        assert found[:2] == ["block", "model"]

    session(folder, act)


def test_a_rename_keeps_the_model(folder: Path) -> None:
    async def act(running: Editor, uri: str) -> None:
        edit = await running.ask("rename", uri, at(MODEL, "Linear<width"), new_name="Dense")
        texts = {name: apply(edit, folder / name) for name in ("model.nacre", "layers.nacre")}
        assert texts["layers.nacre"] == LAYERS.replace("Linear", "Dense")
        assert texts["model.nacre"] == MODEL.replace("Linear", "Dense")
        edit = await running.ask("rename", uri, at(MODEL, "outputs=32"), new_name="features")
        assert apply(edit, folder / "layers.nacre") == LAYERS.replace("outputs", "features")
        assert apply(edit, folder / "model.nacre") == MODEL.replace("outputs=", "features=")
        edit = await running.ask("rename", uri, at(MODEL, "hidden ="), new_name="h")
        assert apply(edit, folder / "model.nacre") == MODEL.replace("hidden", "h")
        assert await running.ask("rename", uri, at(MODEL, "first ="), new_name="one") is None
        assert await running.ask("rename", uri, at(MODEL, "hidden ="), new_name="x") is None
        assert await running.ask("rename", uri, at(MODEL, "hidden ="), new_name="repeat") is None
        assert ["keys" in m or "used already" in m or "word" in m for m in running.messages] == [True] * 3

    session(folder, act)


def test_a_renamed_parameter_keeps_its_key(folder: Path) -> None:
    async def act(running: Editor, uri: str) -> None:
        edit = await running.ask("rename", uri, at(LAYERS, "weight:"), new_name="matrix")
        changed = apply(edit, folder / "layers.nacre")
        assert 'param matrix: f32[outputs, inputs] from "{path}.weight"' in changed
        assert "x @ matrix.T" in changed
        (folder / "layers.nacre").write_text(changed)
        model = await running.open(folder / "model.nacre")
        assert running.diagnostics[model] == []

    session(folder, act, "layers.nacre")


@pytest.mark.parametrize("name", ["gain", "shift"])
def test_a_parameter_that_is_declared_with_others_keeps_its_name(folder: Path, name: str) -> None:
    """One `from` would be the key of both."""
    text = "block Scale(x: f32[4]) -> f32[4] {\n  param gain, shift: f32[4]\n  return x * gain + shift\n}\n"
    (folder / "scale.nacre").write_text(text)

    async def act(running: Editor, uri: str) -> None:
        for place in ("param gain, shift: ", "* gain + shift"):
            assert await running.ask("rename", uri, at(text, place, place.index(name)), new_name="other") is None
        assert ["declared together" in message for message in running.messages] == [True] * 2

    session(folder, act, "scale.nacre")


def test_formatting_is_that_of_fmt(folder: Path) -> None:
    async def act(running: Editor, uri: str) -> None:
        await running.type(uri, MODEL.replace("  hidden = relu", "       hidden=relu"))
        options = protocol.FormattingOptions(2, True)
        params = protocol.DocumentFormattingParams(protocol.TextDocumentIdentifier(uri), options)
        edits = await running.client.text_document_formatting_async(params)
        assert edits is not None and edits[0].new_text == MODEL
        await running.type(uri, "model m(")
        assert not await running.client.text_document_formatting_async(params)

    session(folder, act)


def test_columns_count_utf16_units(folder: Path) -> None:
    text = 'test m "𝛼𝛽" { given x = 1.0; expect unknown = 1.0 }\nmodel m(x: f32) -> f32 { return x + nothing }\n'
    (folder / "wide.nacre").write_text(text)

    async def act(running: Editor, uri: str) -> None:
        found = {d.code: d.range.start.character for d in running.diagnostics[uri]}
        assert found["unknown-name"] == text.splitlines()[1].index("nothing")
        units = len(text[: text.index("unknown")].encode("utf-16-le")) // 2
        await running.type(uri, text.replace("+ nothing", ""))
        assert units in [d.range.start.character for d in running.diagnostics[uri]]

    session(folder, act, "wide.nacre")


def apply(edit: protocol.WorkspaceEdit, path: Path) -> str:
    """The text of a file after an edit."""
    lines = path.read_text().split("\n")
    changes = (edit.changes or {})[path.as_uri()]
    for change in sorted(changes, key=lambda c: (c.range.start.line, c.range.start.character), reverse=True):
        start, end = change.range.start, change.range.end
        assert start.line == end.line
        line = lines[start.line]
        lines[start.line] = line[: start.character] + change.new_text + line[end.character :]
    return "\n".join(lines)
