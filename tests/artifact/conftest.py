"""One artifact with every entry, built once."""

from pathlib import Path

import pytest
from c_models import build, zoo
from nacre.runtime.loader import Model, load


@pytest.fixture(scope="session")
def zoo_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(zoo(), tmp_path_factory.mktemp("zoo") / "zoo.so")


@pytest.fixture(scope="session")
def model(zoo_file: Path) -> Model:
    return load(zoo_file)
