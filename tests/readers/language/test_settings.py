"""Values for the hyper-parameters of models from Python and from the command line."""

import nacre
import numpy as np
import pytest
from nacre.compiler.cli.main import run
from nacre.compiler.readers.language.settings import read_settings

TEXT = """
model scale<n=3, factor>(x: f32[n]) -> f32[n] { return x * factor }
model double<n=2>(x: f32[n]) -> f32[n] { return x + x }
"""


def test_a_setting_is_a_value_of_every_model_with_its_name() -> None:
    model = nacre.compile(TEXT, settings={"n": 5, "factor": 2.5})
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(model.entries["scale"](x), 2.5 * x)
    np.testing.assert_array_equal(model.entries["double"](x), 2 * x)


def test_a_setting_with_the_name_of_a_model_is_for_it_alone() -> None:
    model = nacre.compile(TEXT, settings={"scale.n": np.int64(1), "factor": 2})
    assert model.entries["scale"](np.ones(1, np.float32)).shape == (1,)
    assert model.entries["double"](np.ones(2, np.float32)).shape == (2,)


@pytest.mark.parametrize(
    ("settings", "code"), [({"factor": 1, "m": 2}, "bad-setting"), ({}, "wrong-hypers"), ({"n": {}}, "bad-setting")]
)
def test_wrong_settings_are_reported(settings: dict[str, object], code: str) -> None:
    assert code in {d.code for d in nacre.check(TEXT, settings=settings)}


def test_the_command_line_gives_settings(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    path = f"{tmp_path}/scale.nacre"
    with open(path, "w") as file:
        file.write(TEXT)
    assert run(["check", path]) == 1
    assert "--set factor" in capsys.readouterr().err
    assert run(["check", path, "--set", "factor=2", "--set", "n=7"]) == 0
    assert run(["check", path, "--set", "factor"]) == 2
    assert run(["check", path, "--set", "factor=1", "--set", "facto=2"]) == 1


def test_values_are_literals() -> None:
    texts = ["a=4", "b=-0.5", "c=true", "d=[1, 2]", "e=same", 'f="1"', "g=None", "m.h=f16"]
    expected = {"a": 4, "b": -0.5, "c": True, "d": (1, 2), "e": "same", "f": "1", "g": None, "m.h": "f16"}
    assert read_settings(texts) == expected
