"""Writes a Hugging Face folder with random weights in f32, in the shape of a Llama, with the packages `torch` and
`transformers`. ONNX Runtime GenAI converts such a folder, and Nacre compiles it.

    python tests/bench/language_folder.py llama-1.1b --layers 4 -o llama
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from language_files import SHAPES, Shape
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def write_folder(folder: Path, shape: Shape) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        max_position_embeddings=shape.context,
        hidden_size=shape.width,
        intermediate_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.shared,
        rms_norm_eps=1e-5,
        bos_token_id=0,
        eos_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokens = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=[]))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(folder)


def main() -> None:
    shapes = {name: shape for name, shape in SHAPES.items() if shape.family == "llama"}
    parser = argparse.ArgumentParser(description="Hugging Face folders with random weights")
    parser.add_argument("shape", choices=shapes)
    parser.add_argument("--layers", type=int, help="fewer layers than the shape has")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    shape = shapes[options.shape]
    write_folder(options.output, replace(shape, layers=options.layers or shape.layers))


if __name__ == "__main__":
    main()
