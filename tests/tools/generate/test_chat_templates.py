"""Chat templates use the tags, filters and functions of the package `transformers`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from nacre.compiler.tools.generate.vocabulary import Vocabulary
from nacre.dialect.diagnostics import DiagnosticError

USER = {"role": "user", "content": " a "}
ANSWER = {"role": "assistant", "content": "<think>x</think>b"}
SYSTEM = {"role": "system", "content": "s"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"at": ["<é>", 1]}}}
NAMES = {"bos_token": "<s>", "eos_token": "</s>"}
TEMPLATES: dict[str, tuple[str, Sequence[dict[str, str]], str]] = {
    "loop controls": (
        "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.role }}|"
        "{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}",
        [SYSTEM, USER, ANSWER],
        "user|",
    ),
    "namespace": (
        "{% set ns = namespace(system='', last=-1) %}{% for m in messages[::-1] %}{% if m.role == 'user' %}"
        "{% set ns.last = (messages | length - 1) - loop.index0 %}{% endif %}{% if m['role'] == 'system' %}"
        "{% set ns.system = ns.system + m.content %}{% endif %}{% endfor %}{{ ns.system }} {{ ns.last }}",
        [SYSTEM, USER, ANSWER],
        "s 1",
    ),
    "generation": (
        "{% for m in messages %}\n"
        "{%- if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}\n"
        "{%- else %}{{ bos_token }}{{ m.content | trim }}{% endif %}\n{% endfor %}\n",
        [USER, ANSWER],
        "<s>a<think>x</think>b</s>",
    ),
    "JSON": (
        "{{ tools | tojson }}\n{{ tools[0].function | tojson(indent=2) }}\n"
        "{{ tools[0].function.parameters | tojson(separators=(',', ':'), sort_keys=true) }}"
        "{{ 'é' | tojson(ensure_ascii=True) }}",
        [USER],
        '[{"type": "function", "function": {"name": "f", "parameters": {"at": ["<é>", 1]}}}]\n'
        '{\n  "name": "f",\n  "parameters": {\n    "at": [\n      "<é>",\n      1\n    ]\n  }\n}\n'
        '{"at":["<é>",1]}"\\u00e9"',
    ),
    "methods of Python": (
        "{% set text = messages[1].content %}{% if text.startswith('<think>') and '</think>' in text %}"
        "{{ text.split('</think>')[-1].lstrip('\\n') }}{% endif %}{{ messages[0]['content'].strip().upper() }}"
        "{% for key, value in tools[0].function.items() %}{{ key }} {% endfor %}",
        [USER, ANSWER],
        "bAname parameters ",
    ),
    "macros and tests": (
        "{% macro show(m, first=false) -%}\n  {% if first %}[{% endif %}{{ m.content | trim }}\n{%- endmacro %}"
        "{{ show(messages[0], first=true) }}{% if thinking is not defined or thinking %}!{% endif %}"
        "{% if messages[0].content is string and messages[0].tool_calls is undefined and tools is not none %}"
        "{{ messages | map(attribute='role') | join(',') }}{% endif %}"
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
        [USER, ANSWER],
        "[a!user,assistant1",
    ),
    "white space": (
        "{% for m in messages %}\n    {% if m.role == 'user' %}\n<|user|>\n{{ m.content }}\n    {% endif %}\n"
        "{% endfor %}\n{% if add_generation_prompt %}\n<|bot|>\n{% endif %}\n",
        [USER],
        "<|user|>\n a \n<|bot|>\n",
    ),
}


def _render(template: str, messages: Sequence[dict[str, Any]]) -> str:
    return Vocabulary(None, (), frozenset(), template, NAMES).converse(messages, [TOOL])


@pytest.mark.parametrize("name", TEMPLATES)
def test_features_of_published_templates(name: str) -> None:
    template, messages, expected = TEMPLATES[name]
    assert _render(template, messages) == expected


def test_the_date() -> None:
    template = "{{ strftime_now('%d %b %Y') if strftime_now is defined else '26 Jul 2024' }}"
    before = time.strftime("%d %b %Y")
    assert _render(template, [USER]) in (before, time.strftime("%d %b %Y"))


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% if messages[0].role != 'user' %}{{ raise_exception('roles must alternate') }}{% endif %}", "alternate"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% generation %}a", "generation"),
    ],
)
def test_refused_templates(template: str, message: str) -> None:
    with pytest.raises(DiagnosticError, match=f"the template of the model fails: .*{message}"):
        _render(template, [SYSTEM])
