"""Writes GGUF files with random weights, in the shapes of known language models.

    python tests/bench/language_files.py llama-1.1b q4_0 -o llama.gguf [--layers 4]

Matrices have the given format; gains and biases are f32. A file with fewer layers than the model has decodes at the
same rate of bytes, if its weights still exceed the caches. Each matrix has values of its own, since OpenVINO stores
equal ones once. The tokenizer has a token for each byte, and further tokens that no text contains.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType

Bytes = npt.NDArray[np.uint8]
Fields = list[tuple[str, str, tuple[int, ...]]]
"""The name, the type and the shape of each field of a block."""
CHUNK = 1 << 22
"""Random values that are repeated, since drawing all of them would take longer than writing them."""
CHUNK_BLOCKS = CHUNK // 256
"""Parts of a chunk of whole blocks in every format; a matrix starts at one of them."""


@dataclass(frozen=True, slots=True)
class Shape:
    family: str
    vocabulary: int
    context: int
    width: int
    hidden: int
    layers: int
    heads: int
    shared: int


SHAPES: Mapping[str, Shape] = {
    "gpt2-124m": Shape("gpt2", 50257, 2048, 768, 3072, 12, 12, 12),
    "llama-1.1b": Shape("llama", 32000, 2048, 2048, 5632, 22, 32, 4),
    "llama-26m": Shape("llama", 4096, 2048, 512, 1408, 8, 8, 4),
}
"""The context of GPT-2 is longer than the 1024 tokens of the original, so that tokens can follow 1024 others."""


def _scales(random: np.random.Generator, deviation: float, of: float) -> npt.NDArray[np.float16]:
    """Returns the scales of blocks whose quantized values have the standard deviation `of`."""
    return (random.uniform(0.8, 1.2, CHUNK // 32) * deviation / of).astype(np.float16)


def _q8_0(random: np.random.Generator, deviation: float) -> Bytes:
    blocks = np.empty(CHUNK // 32, [("scale", "<f2"), ("values", "i1", (32,))])
    blocks["scale"] = _scales(random, deviation, 73.3)
    blocks["values"] = random.integers(-127, 128, blocks["values"].shape)
    return blocks.view(np.uint8)


def _q4_0(random: np.random.Generator, deviation: float) -> Bytes:
    blocks = np.empty(CHUNK // 32, [("scale", "<f2"), ("pairs", "u1", (16,))])
    # Values of -7 to 7, stored plus 8: a mean other than 0 would make the scores of attention so large that most
    # probabilities are denormal numbers, which a trained model does not have.
    blocks["scale"] = _scales(random, deviation, 4.3)
    low, high = (random.integers(1, 16, blocks["pairs"].shape) for _ in range(2))
    blocks["pairs"] = low | high << 4
    return blocks.view(np.uint8)


def _iq4_nl(random: np.random.Generator, deviation: float) -> Bytes:
    blocks = np.empty(CHUNK // 32, [("scale", "<f2"), ("pairs", "u1", (16,))])
    # The mean of the values is not 0; scales of both signs make that of the weights 0.
    blocks["scale"] = _scales(random, deviation, 67.4) * random.choice([-1, 1], CHUNK // 32).astype(np.float16)
    blocks["pairs"] = random.integers(0, 256, blocks["pairs"].shape)
    return blocks.view(np.uint8)


def _mxfp4(random: np.random.Generator, deviation: float) -> Bytes:
    blocks = np.empty(CHUNK // 32, [("exponent", "u1"), ("pairs", "u1", (16,))])
    # The values of f4e2m1 have a standard deviation of 2.9.
    nearest = round(math.log2(deviation / 2.9)) + 127
    blocks["exponent"] = random.integers(nearest - 1, nearest + 1, CHUNK // 32, endpoint=True)
    blocks["pairs"] = random.integers(0, 256, blocks["pairs"].shape)
    return blocks.view(np.uint8)


def _f16(random: np.random.Generator, deviation: float) -> Bytes:
    return (random.standard_normal(CHUNK, np.float32) * deviation).astype(np.float16).view(np.uint8)


def _bf16(random: np.random.Generator, deviation: float) -> Bytes:
    words = (random.standard_normal(CHUNK, np.float32) * np.float32(deviation)).view(np.uint32) >> 16
    return words.astype(np.uint16).view(np.uint8)


SUPER = 256
"""The values of a block of the formats `Q2_K` to `Q6_K`."""


def _super_blocks(random: np.random.Generator, fields: Fields) -> npt.NDArray[Any]:
    """Returns blocks of 256 values with random bits in every field."""
    bytes = random.integers(0, 256, CHUNK // SUPER * np.dtype(fields).itemsize, np.uint8)
    return bytes.view(fields)


def _with_minima(random: np.random.Generator, deviation: float, bits: int, scale: int, fields: Fields) -> Bytes:
    """Returns blocks of values `step * scale * q - least * scale`, where q has a number of bits. The mean is 0."""
    blocks = _super_blocks(random, fields)
    levels = 2**bits
    of = scale * ((levels**2 - 1) / 12) ** 0.5
    blocks["step"] = _scales(random, deviation, of)[: len(blocks)]
    blocks["least"] = blocks["step"] * np.float16((levels - 1) / 2)
    # 6 bits for a scale or a minimum are 32 in all of these bytes; 4 bits are 8.
    blocks["scales"] = 0x88 if bits == 2 else [0xA0] * 8 + [0] * 4
    return blocks.view(np.uint8)


def _q2_k(random: np.random.Generator, deviation: float) -> Bytes:
    fields = [("scales", "u1", (16,)), ("values", "u1", (64,)), ("step", "<f2", ()), ("least", "<f2", ())]
    return _with_minima(random, deviation, 2, 8, fields)


def _q4_k(random: np.random.Generator, deviation: float) -> Bytes:
    fields = [("step", "<f2", ()), ("least", "<f2", ()), ("scales", "u1", (12,)), ("values", "u1", (128,))]
    return _with_minima(random, deviation, 4, 32, fields)


def _q5_k(random: np.random.Generator, deviation: float) -> Bytes:
    fields = [("step", "<f2", ()), ("least", "<f2", ()), ("scales", "u1", (12,)), ("values", "u1", (160,))]
    return _with_minima(random, deviation, 5, 32, fields)


def _q3_k(random: np.random.Generator, deviation: float) -> Bytes:
    blocks = _super_blocks(random, [("values", "u1", (96,)), ("scales", "u1", (12,)), ("step", "<f2", ())])
    blocks["step"] = _scales(random, deviation, 16 * 2.35)[: len(blocks)]
    # Scales of 16 or -16, stored plus 32: the upper 2 of their 6 bits are 3 or 1.
    blocks["scales"][:, :8] = 0
    blocks["scales"][:, 8:] |= 0x55
    return blocks.view(np.uint8)


def _q6_k(random: np.random.Generator, deviation: float) -> Bytes:
    blocks = _super_blocks(random, [("values", "u1", (192,)), ("scales", "i1", (16,)), ("step", "<f2", ())])
    blocks["step"] = _scales(random, deviation, 64 * 18.5)[: len(blocks)]
    blocks["scales"] = random.choice([-64, 64], blocks["scales"].shape)
    return blocks.view(np.uint8)


FORMATS: Mapping[str, tuple[GGMLQuantizationType, Callable[[np.random.Generator, float], Bytes]]] = {
    "q8_0": (GGMLQuantizationType.Q8_0, _q8_0),
    "q4_0": (GGMLQuantizationType.Q4_0, _q4_0),
    "iq4_nl": (GGMLQuantizationType.IQ4_NL, _iq4_nl),
    "mxfp4": (GGMLQuantizationType.MXFP4, _mxfp4),
    "q2_k": (GGMLQuantizationType.Q2_K, _q2_k),
    "q3_k": (GGMLQuantizationType.Q3_K, _q3_k),
    "q4_k": (GGMLQuantizationType.Q4_K, _q4_k),
    "q5_k": (GGMLQuantizationType.Q5_K, _q5_k),
    "q6_k": (GGMLQuantizationType.Q6_K, _q6_k),
    "f16": (GGMLQuantizationType.F16, _f16),
    "bf16": (GGMLQuantizationType.BF16, _bf16),
}

FILE_TYPES: Mapping[str, LlamaFileType] = {
    "q8_0": LlamaFileType.MOSTLY_Q8_0,
    "q4_0": LlamaFileType.MOSTLY_Q4_0,
    "iq4_nl": LlamaFileType.MOSTLY_IQ4_NL,
    "mxfp4": LlamaFileType.MOSTLY_MXFP4_MOE,
    "q2_k": LlamaFileType.MOSTLY_Q2_K,
    "q3_k": LlamaFileType.MOSTLY_Q3_K_M,
    "q4_k": LlamaFileType.MOSTLY_Q4_K_M,
    "q5_k": LlamaFileType.MOSTLY_Q5_K_M,
    "q6_k": LlamaFileType.MOSTLY_Q6_K,
    "f16": LlamaFileType.MOSTLY_F16,
    "bf16": LlamaFileType.MOSTLY_BF16,
}
"""The field `general.file_type` by format; OpenVINO GenAI reads no file without it."""


def _matrices(shape: Shape) -> Iterator[tuple[str, tuple[int, int]]]:
    width, hidden = shape.width, shape.hidden
    keys = width // shape.heads * shape.shared
    yield "token_embd.weight", (shape.vocabulary, width)
    if shape.family == "gpt2":
        yield "position_embd.weight", (shape.context, width)
        own = {"attn_qkv": (3 * width, width), "attn_output": (width, width)}
        own |= {"ffn_up": (hidden, width), "ffn_down": (width, hidden)}
    else:
        yield "output.weight", (shape.vocabulary, width)
        own = {
            "attn_q": (width, width),
            "attn_k": (keys, width),
            "attn_v": (keys, width),
            "attn_output": (width, width),
        }
        own |= {"ffn_gate": (hidden, width), "ffn_up": (hidden, width), "ffn_down": (width, hidden)}
    for layer in range(shape.layers):
        for name, size in own.items():
            yield f"blk.{layer}.{name}.weight", size


def _vectors(shape: Shape) -> Iterator[tuple[str, int, float]]:
    """Yields the name, the size and the middle of each gain and bias."""
    norms = ["output_norm", *(f"blk.{i}.{name}" for i in range(shape.layers) for name in ("attn_norm", "ffn_norm"))]
    for name in norms:
        yield f"{name}.weight", shape.width, 1.0
        if shape.family == "gpt2":
            yield f"{name}.bias", shape.width, 0.0
    if shape.family == "gpt2":
        sizes = {
            "attn_qkv": 3 * shape.width,
            "attn_output": shape.width,
            "ffn_up": shape.hidden,
            "ffn_down": shape.width,
        }
        for layer in range(shape.layers):
            for name, size in sizes.items():
                yield f"blk.{layer}.{name}.bias", size, 0.0


def _add_tokenizer(writer: Any, vocabulary: int) -> None:
    # Bytes that are no printable characters have the characters from 256 on, as in the tokenizer of GPT-2.
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = range(256, 256 + 256 - len(printable))
    tokens = ["<s>", "</s>", *(chr(number) for number in (*printable, *others)), "ab"]
    tokens += [f"<{number}>" for number in range(len(tokens), vocabulary)]
    control, normal, unused = (kind.value for kind in (TokenType.CONTROL, TokenType.NORMAL, TokenType.UNUSED))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([control] * 2 + [normal] * 257 + [unused] * (vocabulary - 259))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)


def write_file(path: Path, shape: Shape, format: str) -> None:
    random = np.random.default_rng(0)
    number, draw = FORMATS[format]
    writer: Any = GGUFWriter(path, shape.family)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.shared)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_file_type(FILE_TYPES[format])
    _add_tokenizer(writer, shape.vocabulary)
    if shape.family == "gpt2":
        writer.add_layer_norm_eps(1e-5)
    else:
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_dimension_count(shape.width // shape.heads)
    drawn: dict[int, Bytes] = {}
    for name, (rows, inner) in _matrices(shape):
        if name.startswith("position"):  # llama.cpp adds rows of f32 alone
            table = random.standard_normal((rows, inner), np.float32) * np.float32(inner**-0.5)
            writer.add_tensor(name, table)
            continue
        if inner not in drawn:
            drawn[inner] = draw(random, inner**-0.5)
        pool = drawn[inner]
        size = rows * inner * pool.size // CHUNK
        first = pool.size // CHUNK_BLOCKS * int(random.integers(CHUNK_BLOCKS))
        data = np.tile(pool, math.ceil((first + size) / pool.size))[first : first + size].reshape(rows, -1)
        writer.add_tensor(name, data, raw_dtype=number)
    for name, size, middle in _vectors(shape):
        writer.add_tensor(name, (middle + 0.1 * random.standard_normal(size)).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="GGUF files with random weights")
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("--layers", type=int, help="fewer layers than the shape has")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    shape = SHAPES[options.shape]
    write_file(options.output, replace(shape, layers=options.layers or shape.layers), options.format)


if __name__ == "__main__":
    main()
