"""The readers of model files, by the suffix of the file."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.lazy_dataclass import dataclass
from ..base.similar import missing_file
from ..model.source import SourceModel, WeightSource
from .language.settings import Settings


@dataclass(frozen=True, slots=True)
class Reader:
    """A function that reads a model: `function(path, weights=...)`, and `settings=...` where models have them.

    Its module, relative to this package, is imported when a file is read.
    """

    module: str
    function: str
    settings: bool = False


READERS: Mapping[str, Reader] = {
    ".nacre": Reader("language", "load_module", settings=True),
    ".graph": Reader("dumped_stages", "read_graph_file"),
    ".onnx": Reader("onnx.onnx_model", "read_onnx", settings=True),
    ".gguf": Reader("gguf.gguf_model", "read_gguf_model", settings=True),
    ".txt": Reader("trees.lightgbm", "read_text_file"),
    ".json": Reader("trees.json_file", "read_json_file"),
    ".ubj": Reader("trees.xgboost", "read_ubjson_file"),
    ".cbm": Reader("trees.cbm", "read_cbm_file"),
    ".pmml": Reader("pmml.pmml_model", "read_pmml"),
    ".keras": Reader("keras.keras_model", "read_keras"),
    ".h5": Reader("keras.keras_model", "read_keras"),
    ".hdf5": Reader("keras.keras_model", "read_keras"),
    ".tflite": Reader("tflite.tflite_model", "read_tflite"),
    ".mlir": Reader("stablehlo.stablehlo_model", "read_mlir"),
    ".mlirbc": Reader("stablehlo.stablehlo_model", "read_mlir"),
    ".pt2": Reader("torch.torch_program", "read_pt2"),
    **dict.fromkeys((".pt", ".pth", ".ckpt"), Reader("torch.torch_program", "refuse_pickle")),
    ".skops": Reader("sklearn.skops_file", "read_skops"),
    **dict.fromkeys((".safetensors", ".npz", ".npy", ".bin"), Reader("weights_only", "refuse_weights")),
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), Reader("sklearn.skops_file", "refuse_pickle")),
}
"""Readers by suffix. A file of another suffix is read as model text."""
FOLDER = Reader("huggingface.model_folder", "read_folder", settings=True)
"""The reader of folders."""


def read_file(path: Path, weights: WeightSource | None = None, settings: Settings | None = None) -> SourceModel:
    """Reads the model of a file; `weights` replace the checkpoint that the file names, `settings` are values of the
    hyper-parameters of its models. Raises DiagnosticError; it is a `MissingFileError` if there is no such file."""
    try:
        path.stat()
    except FileNotFoundError:
        raise missing_file(path) from None
    except (OSError, ValueError):
        pass  # the reader of the format gives the reason
    reader = FOLDER if path.is_dir() else READERS.get(path.suffix, READERS[".nacre"])
    if settings and not reader.settings:
        raise DiagnosticError([Diagnostic("bad-setting", f"`{path}` is not model text, and has no hyper-parameters")])
    read = getattr(import_module(f".{reader.module}", __package__), reader.function)
    model = read(path, weights=weights, **({"settings": settings or {}} if reader.settings else {}))
    assert isinstance(model, SourceModel), model
    return model
