"""`nacre generate` and `nacre chat`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from ...runtime.loader import Model
from ..readers.language.parse import read_text
from ..tools.generate.guide import GRAMMAR, JSON_SCHEMA, REGEX, Form, Forms, Guide
from ..tools.generate.tokens import Generator, Sampling, check_language_model, most_tokens
from ..tools.generate.vocabulary import Vocabulary, error, read_vocabulary
from .build_options import Chosen, build_options
from .model_options import PATH
from .models import THREADS, open_model
from .number_ranges import NumberRange

_MODEL = click.argument("model", metavar="MODEL.so|MODEL.gguf|FOLDER", type=PATH)
_TOKENS = click.option(
    "--tokens",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Maximum number of tokens of an answer.",
)
_CAPACITY = click.option(
    "--capacity",
    type=click.IntRange(min=1),
    help="Capacity of the session in tokens.  [default: prompt and answer, or 2048 in a chat]",
)
_LOOKUP = click.option(
    "--lookup",
    type=click.IntRange(min=0, max=64),
    default=0,
    show_default=True,
    help="Maximum number of tokens drafted from earlier text; requires --temperature 0.",
)
_HELP = {
    "temperature": "Divisor of the logits; 0 selects the most likely token.",
    "top_k": "Keep this many of the most likely tokens; 0 keeps all.",
    "top_p": "Keep the fewest tokens whose probabilities add up to this.",
    "min_p": "Keep tokens with this fraction of the largest probability.",
    "penalty": "Penalty for tokens that have occurred; 1 for none.",
    "window": "Number of last tokens to which the penalty applies.",
    "seed": "Seed of the random numbers; the same seed gives the same text.",
    "presence": "Number that is subtracted from the logits of tokens of the answer.",
    "frequency": "Number that is subtracted from them for each occurrence.",
}
_RANGES: dict[str, click.ParamType[Any]] = {
    "temperature": NumberRange(0, 100),
    "top_k": click.IntRange(0),
    "top_p": NumberRange(0, 1, min_open=True),
    "min_p": NumberRange(0, 1),
    "penalty": NumberRange(0, 100, min_open=True),
    "window": click.IntRange(0, 65536),
    "seed": click.IntRange(-(2**31), 2**31 - 1),
    "presence": NumberRange(-2, 2),
    "frequency": NumberRange(-2, 2),
}


def _sampling_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds an option for each field of `Sampling` with one number to a command, as its argument `sampling`."""
    numbers = [field for field in fields(Sampling) if field.name in _RANGES]
    names = [field.name for field in numbers]

    @wraps(command)
    def with_options(**given: Any) -> object:
        return command(sampling=Sampling(**{name: given.pop(name) for name in names}), **given)

    made: Callable[..., Any] = with_options
    for field in reversed(numbers):
        flag = f"--{field.name.replace('_', '-')}"
        kind, text = _RANGES[field.name], _HELP[field.name]
        made = click.option(flag, field.name, type=kind, default=field.default, show_default=True, help=text)(made)
    return made


def _form_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options for the form of an answer to a command, as its argument `form`."""

    @wraps(command)
    def with_options(json_schema: Path | None, grammar: Path | None, regex: str | None, **given: Any) -> object:
        if sum(option is not None for option in (json_schema, grammar, regex)) > 1:
            raise click.UsageError("--json-schema, --grammar and --regex exclude each other")
        form = None if regex is None else Form(REGEX, regex)
        for kind, path in ((JSON_SCHEMA, json_schema), (GRAMMAR, grammar)):
            if path is not None:
                form = Form(kind, read_text(path))
        return command(form=form, **given)

    made: Callable[..., Any] = with_options
    text = "Answers match this regular expression."
    made = click.option("--regex", metavar="PATTERN", help=text)(made)
    text = "Answers are texts of this grammar, in the syntax of Lark."
    made = click.option("--grammar", metavar="FILE", type=PATH, help=text)(made)
    text = "Answers are JSON of this schema."
    return click.option("--json-schema", metavar="FILE", type=PATH, help=text)(made)


def _answer_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that both commands share."""
    for option in (THREADS, build_options, _form_options, _LOOKUP, _CAPACITY, _sampling_options, _TOKENS):
        command = option(command)
    return command


def _open_language_model(
    context: click.Context, path: Path, chosen: Chosen, threads: int, lookup: int, sampling: Sampling
) -> tuple[Model, Vocabulary]:
    if lookup and sampling.temperature > 0:
        raise click.UsageError("--lookup needs --temperature 0")
    if lookup and sampling.changes_logits:
        raise click.UsageError("--lookup excludes --presence and --frequency")
    model = open_model(context, path, chosen, None, threads)
    check_language_model(model)
    return model, read_vocabulary(model)


@click.command("generate")
@_MODEL
@click.argument("prompt")
@_answer_options
@click.pass_context
def generate_command(
    context: click.Context,
    model: Path,
    prompt: str,
    tokens: int,
    sampling: Sampling,
    capacity: int | None,
    lookup: int,
    form: Form | None,
    chosen: Chosen,
    threads: int,
) -> None:
    """Continue a text with a compiled language model.

    \b
      nacre generate model.so "Once upon a time" --temperature 0 --tokens 64
      nacre generate model.gguf "The capital of France is" --seed 7

    Prints the prompt and the tokens that follow it, as they are generated. The text ends where the model ends it, after
    --tokens, or where the session is full. A model file or a Hugging Face folder is compiled first, and kept in the
    cache.
    """
    loaded, vocabulary = _open_language_model(context, model, chosen, threads, lookup, sampling)
    ids = vocabulary.encode(prompt)
    size = capacity or min(most_tokens(loaded), len(ids) + tokens)
    generator = _open(loaded, size, lookup)
    guide = _open_forms(loaded, vocabulary, form)()
    stream = generator.generate(ids, tokens, sampling, vocabulary.end, guide)
    first = True
    for piece in vocabulary.stream(ids, stream):
        # Errors of the prompt come before any text.
        click.echo(prompt + piece if first else piece, nl=False)
        first = False
    click.echo(prompt if first else "")
    _check_form(guide)


@click.command("chat")
@_MODEL
@click.argument("question", required=False)
@click.option("--system", help="The instruction before the conversation.  [default: that of the template]")
@_answer_options
@click.pass_context
def chat_command(
    context: click.Context,
    model: Path,
    question: str | None,
    system: str | None,
    tokens: int,
    sampling: Sampling,
    capacity: int | None,
    lookup: int,
    form: Form | None,
    chosen: Chosen,
    threads: int,
) -> None:
    """Talk with a compiled language model, with the chat template of its file.

    \b
      nacre chat model.so
      nacre chat model.so "What is the capital of France?" --temperature 0

    Answers a question, or reads questions line by line until the end of the input. Later questions follow the earlier
    ones in the cache; only new tokens are computed.
    """
    loaded, vocabulary = _open_language_model(context, model, chosen, threads, lookup, sampling)
    generator = _open(loaded, capacity or min(most_tokens(loaded), 2048), lookup)
    next_guide = _open_forms(loaded, vocabulary, form)
    messages = [] if system is None else [{"role": "system", "content": system}]
    while True:
        asked = question if question is not None else _ask()
        if asked is None:
            return
        messages.append({"role": "user", "content": asked})
        ids = vocabulary.encode(vocabulary.converse(messages))
        known = generator.ids
        if ids[: len(known)] != known:
            # The template changed earlier text: it begins again.
            generator.session.reset()
            generator.ids = known = []
        new = ids[len(known) :]
        answer = ""
        guide = next_guide()
        stream = generator.generate(new, tokens, sampling, vocabulary.end, guide)
        for piece in vocabulary.stream([], stream):
            click.echo(piece, nl=False)
            answer += piece
        click.echo()
        _check_form(guide)
        messages.append({"role": "assistant", "content": answer})
        if question is not None:
            return


def _open(model: Model, capacity: int, lookup: int) -> Generator:
    generator = Generator(model, capacity, lookup)
    if lookup and not generator.drops_tokens:
        raise error("no-lookup", "the states of the model cannot drop tokens, which --lookup needs")
    return generator


def _open_forms(model: Model, vocabulary: Vocabulary, form: Form | None) -> Callable[[], Guide | None]:
    """Returns a function that makes the guide of the next answer. Raises DiagnosticError if the form is not valid."""
    if form is None:
        return lambda: None
    size = model.entries["sample"].arguments[0].shape[0]
    assert isinstance(size, int), size
    forms = Forms(vocabulary, size)
    forms.guide(form)
    return lambda: forms.guide(form)


def _check_form(guide: Guide | None) -> None:
    """Raises DiagnosticError if an answer ended before it had its form."""
    if guide is not None and not guide.is_complete:
        message = "the answer ended before its form was complete"
        raise error("incomplete-form", message, "--tokens and --capacity allow longer answers")


def _ask() -> str | None:
    """Reads the next question; None at the end of the input."""
    if sys.stdin.isatty():
        click.echo("> ", nl=False)
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError as problem:
        raise error("bad-text", f"the input is not text: {problem}") from None
    return line.rstrip("\n") if line else None
