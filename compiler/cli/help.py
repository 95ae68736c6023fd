"""`nacre help`: explains a word from the documentation; `nacre completion`: a script for the shell."""

from __future__ import annotations

import re

import click
from click.shell_completion import CompletionItem, get_completion_class

from ...dialect.wrapping import fit
from ..readers.language.synonyms import ADVICE, similar_names, synonym
from ..tools.help.sections import find, known_words
from ..tools.help.terminal import lay_out, overview
from .reporting import INPUT_ERROR, tell

_MODULE = re.compile(r"^(\w+\.)+(?=\w)")
"""The modules before a function of another library: `torch.nn.functional.softmax`."""
SHELLS = ("bash", "zsh", "fish")


def _words(context: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem[str]]:
    commands = context.find_root().command
    names = commands.list_commands(context) if isinstance(commands, click.Group) else []
    return [CompletionItem(word) for word in sorted({*known_words(), *names}) if word.startswith(typed)]


@click.command("help", context_settings={"ignore_unknown_options": True})
@click.argument("word", required=False, shell_complete=_words)
@click.pass_context
def help_command(context: click.Context, word: str | None) -> int:
    """Explain an operator, a construct, a diagnostic or a pass.

    \b
      nacre help softmax
      nacre help shape-mismatch
      nacre help repeat

    Precisions, targets and commands are explained too. Without a word, all words are listed. The texts are those of the
    documentation.
    """
    if word is None:
        click.echo(overview(), nl=False)
        return 0
    short = _MODULE.sub("", word)
    if not find(word) and (find(short) or short in ADVICE or synonym(short, known_words())):
        word = short
    sections = find(word)
    if sections:
        click.echo("\n".join(map(lay_out, sections)), nl=False)
    command = _command(context, word)
    if command is not None:
        if sections:
            click.echo()
        with click.Context(command, info_name=word, parent=context.parent) as inner:
            click.echo(command.get_help(inner))
    if sections or command is not None:
        return 0
    if word in ADVICE:
        click.echo(fit(f"There is no operator `{word}`: {ADVICE[word]}."))
        return 0
    meant = synonym(word, known_words())
    if meant and find(meant):
        click.echo(f"`{word}` of other libraries is `{meant}` here.\n")
        click.echo("\n".join(map(lay_out, find(meant))), nl=False)
        return 0
    group = context.parent.command if context.parent is not None else None
    commands = group.list_commands(context) if isinstance(group, click.Group) else []
    near = similar_names(word, [*known_words(), *commands])
    said = f"; did you mean {' or '.join(f'`{name}`' for name in near)}?" if near else ""
    tell(f"nacre: there is no help for `{word}`{said}")
    return INPUT_ERROR


def _command(context: click.Context, word: str) -> click.Command | None:
    group = context.parent.command if context.parent is not None else None
    return group.get_command(context, word) if isinstance(group, click.Group) else None


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> int:
    """Print a script that completes commands in a shell.

    \b
      nacre completion bash >> ~/.bashrc
      nacre completion zsh > ~/.zfunc/_nacre
      nacre completion fish > ~/.config/fish/completions/nacre.fish
    """
    complete = get_completion_class(shell)
    assert complete is not None, shell
    root = context.find_root()
    # A class of click checks the version of bash when it writes the script; the text does not depend on it.
    script = complete(root.command, {}, "nacre", "_NACRE_COMPLETE")
    click.echo(script.source_template % script.source_vars())
    return 0
