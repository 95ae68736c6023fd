"""Commands take folders of Hugging Face: `compile`, `import`, `generate`; and folders that are no models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import nacre
import numpy as np
import pytest
from interpreted import InterpretedSession
from nacre.compiler import packed_weights
from nacre.compiler.base.environment import CHECK_PASSES
from nacre.compiler.checking import read_model
from nacre.compiler.cli.main import run
from nacre.compiler.model.parameters import open_parameters
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.tools.generate.vocabulary import read_vocabulary
from nacre.dialect.diagnostics import DiagnosticError
from nacre.passes.quantization.pack_floats import PackFloats
from safetensors.numpy import load_file, save_file
from tiny_folders import SIZES, VOCABULARY, fill, write_folder
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

CONFIG: dict[str, Any] = {**SIZES, "model_type": "mixtral", "num_hidden_layers": 1, "num_local_experts": 4}
CONFIG |= {"num_experts_per_tok": 2, "rope_theta": 100.0, "eos_token_id": [2, 5], "sliding_window": None}
BF16 = ml_dtypes.bfloat16
LETTERS = "abcdefghijklmnopqrstuvwxyz "


def _shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    layer = {
        **{f"{name}_layernorm": (32,) for name in ("input", "post_attention")},
        "self_attn.q_proj": (32, 32),
        "self_attn.k_proj": (16, 32),
        "self_attn.v_proj": (16, 32),
        "self_attn.o_proj": (32, 32),
        "block_sparse_moe.gate": (4, 32),
    }
    for expert in range(4):
        layer |= {f"block_sparse_moe.experts.{expert}.{w}": (48, 32) for w in ("w1", "w3")}
        layer[f"block_sparse_moe.experts.{expert}.w2"] = (32, 48)
    whole = {"model.embed_tokens": (VOCABULARY, 32), "model.norm": (32,), "lm_head": (VOCABULARY, 32)}
    names = {**whole, **{f"model.layers.0.{name}": shape for name, shape in layer.items()}}
    return {f"{name}.weight": shape for name, shape in names.items()}


def _write_tokenizer(folder: Path) -> None:
    special = ["<pad>", "<s>", "</s>", "<|end|>"]
    tokens = {token: i for i, token in enumerate([*special, *LETTERS, *"0123456789"])}
    tokenizer = Tokenizer(models.WordLevel(tokens, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.enable_truncation(4)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": "{{ bos_token }}a"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("folders") / "tiny.model"
    write_folder(path, CONFIG, _shapes(CONFIG), shards=3)
    _write_tokenizer(path)
    return path


@pytest.fixture(scope="module")
def artifact(folder: Path) -> Path:
    """Compiled without the checks of each stage, which take ten times as long."""
    path = folder.parent / "tiny.so"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(CHECK_PASSES, raising=False)
        assert run(["compile", str(folder), "-o", str(path), "-O0"]) == 0
    return path


def test_text_is_generated(artifact: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", str(artifact), "what is it", "--temperature", "0", "--tokens", "8"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("what is it") and printed.endswith("\n")
    vocabulary = read_vocabulary(nacre.load(artifact))
    assert vocabulary.begin == (1,) and vocabulary.end == {1, 2, 3, 5}
    assert vocabulary.encode("ab cd ef")[:3] == [1, 4, 5]
    assert len(vocabulary.encode("ab cd ef")) == 9, "the tokenizer cuts the text"
    assert vocabulary.converse([]) == "<s>a"


def test_the_text_of_import_computes_the_same(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "written.nacre"
    assert run(["import", str(folder), "-o", str(path)]) == 0
    ids = np.arange(3, 15, dtype=np.int32)
    one, other = (InterpretedSession(read_model(each), S=13) for each in (folder, path))
    np.testing.assert_array_equal(one.call("score", ids), other.call("score", ids))
    np.testing.assert_array_equal(one.call("decode", ids[:1] * 0), other.call("decode", ids[:1] * 0))


def test_matrices_in_bf16_keep_their_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers are those of a folder in f32, the matrices are read as stored, and they may be packed."""
    short, wide = tmp_path / "short", tmp_path / "wide"
    config = {**SIZES, "model_type": "llama", "num_hidden_layers": 1, "rope_theta": 100.0}
    shapes = {key: shape for key, shape in _shapes(CONFIG).items() if "moe" not in key}
    shapes |= {f"model.layers.0.mlp.{name}_proj.weight": (48, 32) for name in ("gate", "up")}
    shapes |= {"model.layers.0.mlp.down_proj.weight": (32, 48)}
    for path in (short, wide):
        write_folder(path, config, shapes)
        numbers = {key: fill(key, shape).astype(BF16) for key, shape in shapes.items()}
        save_file(
            {key: data if path is short else data.astype(np.float32) for key, data in numbers.items()},
            path / "model.safetensors",
        )
    sources = [read_model(path) for path in (short, wide)]
    kinds = {p.key: str(p.type.dtype) for p in sources[0].module.parameters if p.key in shapes}
    assert kinds == {key: "bf16" if len(shape) == 2 else "f32" for key, shape in shapes.items()}
    ids = np.arange(3, 12, dtype=np.int32)
    one, other = (InterpretedSession(source, S=13) for source in sources)
    np.testing.assert_array_equal(one.call("score", ids), other.call("score", ids))
    monkeypatch.setattr(packed_weights, "LEAST", 0)
    monkeypatch.setattr(packed_weights, "NUMBERS_OF_AN_ESCAPE", 30)
    passes, targets = (PackFloats(),), parse_targets("x86-64-v4")
    parameters = packed_weights.packable(passes, sources[0].module, targets)
    (found,) = packed_weights.with_packed_floats(passes, parameters, targets, open_parameters(sources[0]))
    assert isinstance(found, PackFloats)
    assert len(found.counts) == sum(len(shape) == 2 for shape in shapes.values())


@pytest.mark.parametrize("level", [0, 2])
def test_only_chosen_experts_are_read(
    folder: Path, tmp_path: Path, level: int, pytestconfig: pytest.Config, unchecked: None
) -> None:
    """Weights of an expert that no token chooses may be anything."""
    if not pytestconfig.getoption("--variants"):
        pytest.skip("compiled mixtures of experts run with --variants")
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(file)
    experts = "model.layers.0.block_sparse_moe"
    # All experts have the same score: the first two are chosen.
    tensors[f"{experts}.gate.weight"] = np.zeros_like(tensors[f"{experts}.gate.weight"])
    ids = np.arange(3, 15, dtype=np.int32)
    results = []
    for value in (0.0, np.nan):
        for part in ("w1", "w2", "w3"):
            key = f"{experts}.experts.3.{part}.weight"
            tensors[key] = np.full_like(tensors[key], value)
        path = tmp_path / f"expert{value}"
        path.mkdir()
        (path / "config.json").write_text((folder / "config.json").read_text())
        save_file(tensors, path / "model.safetensors")
        session = nacre.compile(path, path / "model.so", opt_level=level).session(S=12)
        results.append(session.entries["score"](ids))
    assert np.isfinite(results[1]).all()
    np.testing.assert_array_equal(*results)


BAD: dict[str, tuple[dict[str, Any], str | None]] = {
    "no kind": ({"model_type": None}, "does not state its `model_type`"),
    "object as kind": ({"model_type": {"a": 1}}, "does not state its `model_type`"),
    "unknown": ({"model_type": "flamingo"}, "unknown `model_type` `flamingo`"),
    "no size": ({"hidden_size": None}, "does not state its `hidden_size`"),
    "text": ({"hidden_size": "32"}, "`hidden_size` of .* is '32', not a size"),
    "heads": ({"num_key_value_heads": 3}, "4 heads of queries for 3 heads of keys"),
    "activation": ({"hidden_act": "mish"}, "`hidden_act` of .* is 'mish'"),
    "rope": ({"rope_scaling": {"type": "ntk"}}, "scales rotary positions by `ntk`, which is not supported"),
    "base": (
        {"rope_scaling": {"type": "yarn", "factor": 4.0}, "rope_theta": 1.0},
        "scales frequencies of the base 1.0 by `yarn`, which is not supported",
    ),
    "experts": ({"num_experts_per_tok": 5}, "chooses 5 of 4 experts"),
    "dense layers": ({"mlp_only_layers": [0]}, "layers with experts and layers without"),
    "infinite": ({"rope_theta": float("inf")}, "`rope_theta` of .* is inf, not a number"),
    "huge": ({"rope_theta": 10**400}, "`rope_theta` of .* is 1000*, not a number"),
    "shape": ({"hidden_size": 36}, "must be|no tensor"),
    "layers": ({"num_hidden_layers": 3}, "has no tensor"),
    "many layers": ({"num_hidden_layers": 1 << 30}, "is 1073741824, but its weights have only 22 tensors"),
    "all of a head and more": (
        {"partial_rotary_factor": 1.7e308},
        "has the `partial_rotary_factor` 1.7e.308, which is",
    ),
    "wide heads": (
        {"head_dim": (1 << 31) - 2, "rope_scaling": {"type": "yarn", "factor": 4.0}},
        "rotates 2147483646 of 2147483646 numbers of a head",
    ),
    "turns": ({"rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": 1.7e308}}, None),
    "lists of types": (
        {"layer_types": [["full_attention"]]},
        "has layers of the types .'full_attention'., which is not",
    ),
    "types of layers": ({"layer_types": ["full_attention"] * 2}, "not a list of 1 types"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_configurations(name: str, folder: Path, tmp_path: Path) -> None:
    changes, message = BAD[name]
    for file in folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "config.json").unlink()
    values = {key: value for key, value in (CONFIG | changes).items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(values))
    errors = nacre.check(tmp_path)
    if message is None:
        assert not errors
    else:
        assert errors and any(re.search(message, error.message) for error in errors), errors


def test_an_unknown_architecture_lists_the_known_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "flamingo"}')
    assert run(["compile", str(tmp_path), "-o", str(tmp_path / "a.so")]) == 1
    printed = " ".join(capsys.readouterr().err.split())
    assert "error[bad-folder]" in printed
    assert "known are bert, clip, distilbert, gemma, gemma2, gemma3, gemma3_text, gpt2, llama, mamba" in printed


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100000])
def test_files_that_are_no_configurations(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(DiagnosticError, match=r"is not JSON|does not contain a JSON object"):
        read_model(tmp_path)


def test_folders_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(DiagnosticError, match=r"is a directory without a `config.json`"):
        read_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(DiagnosticError, match="has no checkpoint"):
        read_model(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(DiagnosticError, match=r"pytorch_model.bin` is broken"):
        read_model(tmp_path)
