"""Calls of tools in the texts of answers: notations, the scanner, and grammars."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import nacre
import pytest

pytest.importorskip("starlette", reason="the package starlette is not installed")

from nacre.compiler.tools.generate.guide import JSON_SCHEMA, Form, Forms
from nacre.compiler.tools.generate.vocabulary import Pieces, Vocabulary, read_vocabulary
from nacre.compiler.tools.serve.conversation import Function, Tools, read_messages, read_tools
from nacre.compiler.tools.serve.fields import RequestError
from nacre.compiler.tools.serve.tool_calls import Notation, Scanner, calls_form, find_notation
from nacre.dialect.diagnostics import DiagnosticError
from talker import TOKENS

PARAMETERS = {
    "type": "object",
    "properties": {"at": {"$ref": "#/$defs/place"}},
    "required": ["at"],
    "additionalProperties": False,
    "$defs": {"place": {"enum": ["sea", "the {"]}},
}
FUNCTIONS = (Function("tide", "", PARAMETERS, False), Function("now", "", {"type": "object"}, False))
TOOLS = Tools(FUNCTIONS, "", False, True)
DESCRIBED = {
    "tagged": "{{ tools }}<tool_call>",
    "listed": "{{ tools }}[TOOL_CALLS] [",
    "marked": "{{ tools }}<|tool_call|>",
    "plain": '{{ tools }}Respond in the format {"name": function name, "parameters": values}.',
}
SEA, THE, NOW = '{"at": "sea"}', '{"at": "the {"}', "{}"


@pytest.fixture(scope="module")
def vocabulary(talker: Path) -> Vocabulary:
    return read_vocabulary(nacre.load(talker))


def notation(name: str, vocabulary: Vocabulary) -> Notation:
    return find_notation(replace(vocabulary, template=DESCRIBED[name]))


def scan(scanner: Scanner, text: str, size: int) -> tuple[str, list[tuple[str, str]]]:
    """The content and the calls of a text that comes in pieces."""
    content, calls = "", list[tuple[str, str]]()
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    for number, piece in enumerate([*pieces, ""]):
        more, parts = scanner.push(piece, last=number == len(pieces))
        content += more
        for part in parts:
            if part.name:
                assert part.index == len(calls) and len(part.id) == 9 and part.id.isalnum()
                calls.append((part.name, part.arguments))
            else:
                name, arguments = calls[part.index]
                calls[part.index] = (name, arguments + part.arguments)
    return content, calls


TEXTS: dict[str, tuple[str, str, str, list[tuple[str, str]]]] = {
    "one": ("tagged", f'<tool_call>\n{{"name": "tide", "arguments": {SEA}}}\n</tool_call>', "", [("tide", SEA)]),
    "content": (
        "tagged",
        f'It is \n\n<tool_call> {{"name": "tide", "arguments": {THE}}} </tool_call>\n\nso.',
        "It isso.",
        [("tide", THE)],
    ),
    "two": (
        "tagged",
        f'<tool_call>\n{{"name":"tide","arguments":{SEA}}}\n</tool_call>\n'
        '<tool_call>{"name": "now", "arguments": {}, "id": 3}</tool_call>',
        "",
        [("tide", SEA), ("now", NOW)],
    ),
    "order": ("tagged", f'<tool_call>{{"arguments": {THE}, "name": "tide"}}</tool_call>', "", [("tide", THE)]),
    "type": ("tagged", '<tool_call>{"type": "function", "name": "now", "arguments": {}}', "", [("now", NOW)]),
    "unknown": (
        "tagged",
        '<tool_call>\n{"name": "no", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "no", "arguments": {}}\n</tool_call>',
        [],
    ),
    "no object": ("tagged", "a <tool_call></tool_call> <tool b", "a<tool_call></tool_call> <tool b", []),
    "broken": ("tagged", '<tool_call>{"name": now}', '<tool_call>{"name": now}', []),
    "begun": ("tagged", 'x <tool_call>{"name": "tide", "arg', 'x<tool_call>{"name": "tide", "arg', []),
    "cut": ("tagged", '<tool_call>{"name": "tide", "arguments": {"at": "}', "", [("tide", '{"at": "}')]),
    "marker": ("tagged", "a < b <tool_cal", "a < b <tool_cal", []),
    "list": (
        "listed",
        f'[TOOL_CALLS] [{{"name": "tide", "arguments": {SEA}, "id": "abc"}}, {{"name": "now", "arguments": {{}}}}]',
        "",
        [("tide", SEA), ("now", NOW)],
    ),
    "marked list": (
        "marked",
        f'<|tool_call|>[{{"name": "tide", "arguments": {SEA}}}]<|/tool_call|>',
        "",
        [("tide", SEA)],
    ),
    "plain": ("plain", f'{{"name": "tide", "parameters": {THE}}}', "", [("tide", THE)]),
    "plain two": (
        "plain",
        f'{{"name": "tide", "parameters": {SEA}}}; {{"name": "now", "parameters": {{}}}}',
        "",
        [("tide", SEA), ("now", NOW)],
    ),
    "plain text": ("plain", ' It is {"name": "now", "parameters": {}}', ' It is {"name": "now", "parameters": {}}', []),
    "plain object": ("plain", '{"a": "\\"}"}', '{"a": "\\"}"}', []),
    "escapes": ("plain", '{"name": "now", "parameters": {"a": "\\\\"}}', "", [("now", '{"a": "\\\\"}')]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_calls_in_texts(vocabulary: Vocabulary, name: str) -> None:
    """In pieces of any size."""
    kind, text, content, calls = TEXTS[name]
    for size in (1, 2, 3, 7, len(text)):
        found, read = scan(Scanner(notation(kind, vocabulary), TOOLS), text, size)
        assert ("".join(found.split()), read) == ("".join(content.split()), calls), size
        assert calls or found.rstrip() == content or "<tool_call>" in text


def test_text_is_held_back_only_while_it_may_be_a_call(vocabulary: Vocabulary) -> None:
    scanner = Scanner(notation("tagged", vocabulary), TOOLS)
    assert [scanner.push(piece)[0] for piece in ("It ", "is", " <to", "p", " <")] == ["It", " is", "", " <top", ""]
    scanner.push('tool_call>{"name": "tide", "arguments": ')
    pieces = [[part.arguments for part in scanner.push(piece)[1]] for piece in ('{"', "at", '": "s', 'ea"}', "}")]
    assert pieces == [['{"'], ["at"], ['": "s'], ['ea"}'], []]


def test_an_answer_with_one_call_ends_behind_it(vocabulary: Vocabulary) -> None:
    scanner = Scanner(notation("tagged", vocabulary), replace(TOOLS, parallel=False))
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    assert scan(scanner, call + call, 5) == ("", [("now", NOW)]) and scanner.is_done


@pytest.mark.parametrize(
    ("template", "code"),
    [("{{ messages }}", "no-tools"), ("{{ tools }}<function=", "unknown-notation"), ("{% if %}", "bad-template")],
)
def test_templates_without_a_known_notation(vocabulary: Vocabulary, template: str, code: str) -> None:
    with pytest.raises(DiagnosticError) as raised:
        find_notation(replace(vocabulary, template="plain", tool_template=template))
    assert [found.code for found in raised.value.diagnostics] == [code]


def test_templates_read_tools_and_calls(vocabulary: Vocabulary) -> None:
    """A filter does not escape HTML; the result of a call has the name of its function."""
    template = (
        "{% for t in tools %}{{ t | tojson }}{% endfor %}{% for m in messages %}{% if m.role == 'user' %}{% continue %}"
        "{% endif %}{{ m.name }}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
    )
    call = {"id": "c1", "type": "function", "function": {"name": "tide", "arguments": '{"at": "<é>"}'}}
    messages = read_messages(
        {
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "3"}]},
            ]
        }
    )
    changed = replace(vocabulary, tool_template=template)
    assert changed.converse(messages, [{"a": "'"}]) == '{"a": "\'"}{"at": "<é>"}tide'
    assert "tide" not in changed.converse(messages[:1])


FORMS = {"tagged", "listed", "plain"}


def allows(forms: Forms, form: Form | None, vocabulary: Vocabulary, text: str) -> bool:
    assert form is not None
    guide = forms.guide(form)
    for token in vocabulary.tokenizer.encode(text.replace(" ", "\u2581"), add_special_tokens=False).ids[1:]:
        if guide.is_done or not guide.allowed()[token]:
            return False
        guide.accept(token)
    return guide.is_complete


@pytest.mark.parametrize("name", sorted(FORMS))
def test_grammars_of_calls(vocabulary: Vocabulary, name: str) -> None:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    forms, found = Forms(vocabulary, len(TOKENS)), notation(name, vocabulary)
    key = found.key
    around = {"tagged": ("<tool_call>\n", "\n</tool_call>"), "listed": ("[TOOL_CALLS] [", "]"), "plain": ("", "")}[name]

    def call(function: str, arguments: str) -> str:
        return around[0] + f'{{"name": "{function}", "{key}": {arguments}}}' + around[1]

    strict = replace(FUNCTIONS[0], strict=True)
    required = calls_form(found, replace(TOOLS, is_required=True), vocabulary, None)
    named = calls_form(found, replace(TOOLS, named="now", is_required=True), vocabulary, None)
    free = calls_form(found, replace(TOOLS, functions=(strict, FUNCTIONS[1])), vocabulary, None)
    answer = Form(JSON_SCHEMA, '{"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}')
    formed = calls_form(found, TOOLS, vocabulary, answer)
    assert calls_form(found, TOOLS, vocabulary, None) is None
    expected = {
        call("tide", SEA): (True, False, True, True),
        call("now", NOW): (True, True, True, True),
        call("tide", "{}"): (False, False, False, False),
        "it is": (False, False, True, False),
        '{"b": 3}': (False, False, name != "plain", True),
    }
    for text, wanted in expected.items():
        assert tuple(allows(forms, form, vocabulary, text) for form in (required, named, free, formed)) == wanted, text
    if name == "tagged":
        assert allows(forms, required, vocabulary, call("now", NOW) + "\n" + call("tide", SEA))
        assert allows(forms, free, vocabulary, "so " + call("now", NOW) + " on")
        assert not allows(forms, free, vocabulary, "so " + call("tide", NOW) + " on")


def test_markers_that_are_special_tokens(vocabulary: Vocabulary) -> None:
    """A token whose text decoding leaves out encloses calls, in texts and in grammars."""
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    found = Notation("<|user|>", "<|bot|>", "arguments", False, " \n")
    assert found.special_tokens(vocabulary) == {3: "<|user|>", 4: "<|bot|>"}
    pieces = Pieces(vocabulary, (), found.special_tokens(vocabulary))
    assert [pieces.push(number) for number in (TOKENS.index("a"), 3, TOKENS.index("b"), 4)] == [
        "a",
        "<|user|>",
        "b",
        "<|bot|>",
    ]
    form = calls_form(found, replace(TOOLS, named="now", is_required=True), vocabulary, None)
    assert form is not None
    allowed = Forms(vocabulary, len(TOKENS)).guide(form).allowed()
    assert allowed.nonzero()[0].tolist() == [3]
    free = calls_form(found, replace(TOOLS, functions=(replace(FUNCTIONS[1], strict=True),)), vocabulary, None)
    assert free is not None and "TEXT (<[3]>" in free.text
    marks = Forms(vocabulary, len(TOKENS)).guide(free).allowed()
    assert marks[3] and marks[TOKENS.index("a")] and not marks[4]


TOOL = {"type": "function", "function": {"name": "f"}}
BAD_TOOLS: dict[str, tuple[dict[str, Any], str]] = {
    "list": ({"tools": {}}, "`tools` is not a list"),
    "many": ({"tools": [TOOL] * 129}, "`tools` is not a list of up to 128"),
    "kind": ({"tools": [TOOL, {"type": "custom"}]}, r"`tools\[1\]` does not have the type"),
    "name": ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "has no `name` of 1 to 64"),
    "text": ({"tools": [{"type": "function", "function": {"name": "a", "description": 1}}]}, "not a text"),
    "schema": (
        {"tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "string"}}}]},
        "not the JSON schema of an object",
    ),
    "strict": ({"tools": [{"type": "function", "function": {"name": "a", "strict": 2}}]}, "`strict` is not"),
    "twice": ({"tools": [TOOL, TOOL]}, "two functions of one name"),
    "no tools": ({"tool_choice": "required"}, "`tool_choice` needs `tools`"),
    "choice": ({"tools": [TOOL], "tool_choice": "any"}, "`tool_choice` is neither"),
    "other": ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "names `g`"),
    "parallel": ({"tools": [TOOL], "parallel_tool_calls": 2}, "`parallel_tool_calls` is not"),
}


@pytest.mark.parametrize("name", BAD_TOOLS)
def test_tools_that_are_not_valid(name: str) -> None:
    body, message = BAD_TOOLS[name]
    with pytest.raises(RequestError, match=message):
        read_tools(body)


def test_tools_of_requests() -> None:
    assert read_tools({}) is read_tools({"tools": [TOOL], "tool_choice": "none"}) is read_tools({"tools": []}) is None
    found = read_tools({"tools": [TOOL], "parallel_tool_calls": False})
    parameters = {"type": "object", "properties": {}, "additionalProperties": False}
    assert found == Tools((Function("f", "", parameters, False),), "", False, False)
    named = {"type": "function", "function": {"name": "f"}}
    assert read_tools({"tools": [TOOL], "tool_choice": named}) == replace(found, named="f", is_required=True)


@pytest.mark.parametrize("name", ["auto", "required"])
def test_a_function_may_have_the_name_of_a_choice(name: str, vocabulary: Vocabulary) -> None:
    described = {"type": "function", "function": {"name": name}}
    tools = read_tools({"tools": [TOOL, described], "tool_choice": described})
    assert tools is not None
    form = calls_form(notation("tagged", vocabulary), tools, vocabulary, None)
    assert form is not None and "call_0:" in form.text and "call_1:" not in form.text


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
LISTED = CALL | {"function": {"name": "f", "arguments": "[]"}}
BAD_CALLS: dict[str, tuple[Any, str]] = {
    "arguments": ([CALL | {"function": {"name": "f", "arguments": "["}}], "without an `id`"),
    "list": ([CALL, LISTED], "without an `id`"),
    "id": ([CALL | {"id": None}], "without an `id`"),
    "number": (3, "without an `id`"),
    "none": ([], "a text as `content`"),
    "other": ([CALL | {"id": "d"}], r"`messages\[1\]` does not have the id of an earlier call"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_calls_in_messages_that_are_not_valid(name: str) -> None:
    calls, message = BAD_CALLS[name]
    messages = [{"role": "assistant", "tool_calls": calls}, {"role": "tool", "content": "3", "tool_call_id": "c"}]
    with pytest.raises(RequestError, match=message):
        read_messages({"messages": messages})
