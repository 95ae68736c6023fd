"""The page of JSON outputs has a schema of each command with `--json`; the harness validates every real output."""

from __future__ import annotations

import pytest
from cli_harness import SCHEMAS, check_json
from nacre.compiler.cli.main import all_commands
from nacre.compiler.tools.bisect.culprit import Culprit, culprit_data

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema, of the extra nacre[test], validates outputs")


def test_each_command_with_json_has_a_schema() -> None:
    commands = {
        name
        for name, command in all_commands().items()
        if any(option == "--json" for parameter in command.params for option in parameter.opts)
    }
    assert commands == set(SCHEMAS)


@pytest.mark.parametrize("command", SCHEMAS)
def test_schemas_are_valid(command: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[command])


@pytest.mark.parametrize("damaged", [{"failure": {}, "nodes": 1, "written": []}, {"nodes": 1}, []])
def test_another_output_is_refused(damaged: object) -> None:
    with pytest.raises(jsonschema.ValidationError):
        check_json("reduce", damaged)


def test_a_wrong_kernel_has_no_number_of_a_pass() -> None:
    culprit = culprit_data(Culprit("compile", "the kernel `k` computes wrong numbers", kernel="k"))
    failure = {"kind": "numbers", "origin": "code", "message": ""}
    check_json("bisect", {"culprit": culprit, "failure": failure, "nodes": 1, "written": []})
