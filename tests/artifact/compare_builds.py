"""Builds many models with the code of one checkout, and writes a digest of each: two checkouts that should generate the
same code are compared by it.

    python tests/artifact/compare_builds.py NEW
    python tests/artifact/compare_builds.py OLD --checkout ../other-checkout
    diff OLD/digests.txt NEW/digests.txt

The models are those of `samples/` and `tests/models/`, with random weights, some of them in other precisions too, and
random graphs of `tests/differential/`. Each is built for every target. The models always come from this checkout, so
both runs read the same input; the compiler comes from the other one if `--checkout` names it.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MODELS = ("samples/*/*.nacre", "tests/models/*.nacre")
PRECISIONS = {"digits": ("int8", "bf16", "int4"), "minilm": ("int8", "bf16", "int4a8")}
"""The precisions, beside its own, in which a model is built, by the name of its file."""
TARGETS = "native,portable"


def use_checkout(root: Path, folder: Path) -> None:
    """Lets this process and its children import the package of a checkout, laid out as it is installed."""
    view = folder / "view" / "nacre"
    view.mkdir(parents=True, exist_ok=True)
    rooms = {name: root / name for name in ("compiler", "dialect", "passes", "runtime")}
    for name, target in {**rooms, **{path.name: path for path in (root / "compiler" / "nacre").iterdir()}}.items():
        (view / name).unlink(missing_ok=True)
        (view / name).symlink_to(target.resolve())
    os.environ["PYTHONPATH"] = str(view.parent)
    sys.path[:0] = [str(view.parent), str(ROOT / "tests" / "bench"), str(ROOT / "tests")]


def model_builds(target: str, folder: Path, only: str) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """For every model and precision: a name, and what builds the artifact."""
    read_model = importlib.import_module("nacre.compiler.api").read_model
    in_precision = importlib.import_module("nacre.compiler.quantization.choose").in_precision
    pipeline: Any = importlib.import_module("nacre.compiler.pipeline")
    parse_targets = importlib.import_module("nacre.compiler.targets.target").parse_targets
    random_weights = importlib.import_module("random_weights").random_weights
    save_file = importlib.import_module("safetensors.numpy").save_file

    config = importlib.import_module("workloads.models").CONFIG

    def build(path: Path, precision: str | None) -> bytes:
        # A model reads files that lie beside it: what it imports, and the configuration of its checkpoint.
        beside = folder / path.parent.name
        if not beside.exists():
            shutil.copytree(path.parent, beside, ignore=shutil.ignore_patterns("__pycache__"))
            (beside / "config.json").write_text(json.dumps(config), encoding="utf-8")
        path, checkpoint = beside / path.name, beside / f"{path.stem}.random.safetensors"
        save_file(random_weights(read_model(path).module), checkpoint)
        source_model = in_precision(read_model(path, checkpoint), precision)
        output = folder / "model.so"
        pipeline.Build(source_model, pipeline.Options(targets=parse_targets(target))).run(output)
        return output.read_bytes()

    for path in sorted(path for pattern in MODELS for path in ROOT.glob(pattern)):
        if "model " in path.read_text(encoding="utf-8"):
            for precision in (None, *PRECISIONS.get(path.stem, ())):
                name = f"{path.stem} {precision or 'as written'}"
                if only in name:
                    yield name, lambda path=path, precision=precision: build(path, precision)


def graph_builds(target: str, count: int) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """For every random graph: a name, and what builds its objects."""
    generator, native = (importlib.import_module(f"differential.{name}") for name in ("generator", "native"))
    objects: Any = importlib.import_module("nacre.compiler.codegen.objects")
    parse_targets = importlib.import_module("nacre.compiler.targets.target").parse_targets

    def build(seed: int) -> bytes:
        options = objects.CodeOptions(parse_targets(target), 2, visible=True)
        lowered = native.lower([generator.random_graph(seed)], native.Level(2, target))
        return b"".join(objects.generate_objects(lowered, options)[1])

    for seed in range(count):
        yield f"graph {seed}", lambda seed=seed: build(seed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="a folder for `digests.txt` and the cache")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="whose compiler builds; this one by default")
    parser.add_argument("--graphs", type=int, default=100, help="how many random graphs")
    parser.add_argument("--targets", default=TARGETS, help=f"the values of `--target`; {TARGETS} by default")
    parser.add_argument("--only", default="", help="build only models whose name contains this")
    options = parser.parse_args()
    output = options.output.resolve()
    use_checkout(options.checkout, output)
    os.environ["NACRE_CACHE"] = str(output / "cache")
    os.environ.pop("NACRE_CHECK_PASSES", None)
    fault = importlib.import_module("nacre").DiagnosticError
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for target in options.targets.split(","):
            for name, build in (
                *model_builds(target, Path(folder), options.only),
                *graph_builds(target, options.graphs),
            ):
                try:
                    digest = hashlib.sha256(build()).hexdigest()
                except fault as error:
                    digest = f"refused: {error.diagnostics[0].message}"
                lines.append(f"{digest}  {name} for {target}\n")
                (output / "digests.txt").write_text("".join(lines), encoding="utf-8")
    print(f"{len(lines)} builds in {output / 'digests.txt'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
