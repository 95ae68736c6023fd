"""Writes `models.npz`: small models of Keras as files, random inputs, and the results of Keras.

pip install keras h5py
KERAS_BACKEND=numpy python tests/readers/keras_files/generate_keras.py [NAME ...]

With names, these models are written anew and the others stay as they are.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import Input, Model, Sequential, layers

MODELS = Path(__file__).with_name("models.npz")


def attention_models() -> Iterator[tuple[str, Any]]:
    x, y, mask = Input((5, 8), name="queries"), Input((7, 6), name="values"), Input((5, 7), name="mask", dtype="bool")
    a = layers.MultiHeadAttention(2, 3, value_dim=4)(x, y)
    b = layers.MultiHeadAttention(3, 2, use_bias=False)(x, key=y, value=y, attention_mask=mask)
    c = layers.MultiHeadAttention(2, 4)(a, b, use_causal_mask=True)
    d = layers.GroupQueryAttention(4, 4, 2)(c, a)
    yield "heads", Model([x, y, mask], [a, b, c, d])
    k = layers.Dense(8)(y)
    e = layers.Attention(use_scale=True)([x, k])
    f = layers.AdditiveAttention()([e, k, k], use_causal_mask=True)
    h = layers.EinsumDense("abc,cde->abde", output_shape=(None, 2, 3), bias_axes="e", activation="relu")(f)
    i = layers.EinsumDense("abc,bc->ab", output_shape=(5,), bias_axes="b")(f)
    j = layers.GroupNormalization(2)(layers.RMSNormalization()(f))
    k = layers.TimeDistributed(layers.Dense(4, activation="tanh"))(j)
    dots = [layers.Dot(axes=(2, 1), normalize=True)([k, i_ := layers.Permute((2, 1))(k)]), layers.Dot(axes=1)([i, i])]
    yield "direct_attention", Model([x, y], [e, f, h, i, j, k, *dots, layers.RandomHue(0.1)(i_)])


def step_models() -> Iterator[tuple[str, Any]]:
    """Cells one step at a time, states as operands and results, and convolutional cells."""
    x, h, c = Input((5, 4), name="steps"), Input((3,), name="h"), Input((3,), name="c")
    last = layers.LSTM(3, return_sequences=True, return_state=True)(x, initial_state=[h, c])
    cells = [layers.LSTMCell(3), layers.GRUCell(2, reset_after=False), layers.LSTMCell(4, use_bias=False)]
    outputs = [
        *last,
        layers.GRU(3)(x, initial_state=h),
        layers.LSTM(3, activation="relu", recurrent_activation="hard_sigmoid", use_bias=False)(x),
        layers.GRU(2, reset_after=False, go_backwards=True, return_sequences=True)(x),
        layers.GRU(2, activation="softsign")(x),
        layers.Bidirectional(layers.SimpleRNN(2, activation="gelu", return_sequences=True))(x),
        layers.RNN(layers.SimpleRNNCell(3), return_sequences=True, go_backwards=True)(x),
        layers.RNN(cells, return_sequences=True)(x),
    ]
    yield "steps", Model([x, h, c], outputs)
    x, y, z = Input((3, 4, 5, 2), name="film"), Input((3, 6, 2), name="lines"), Input((2, 3, 3, 3, 1), name="solids")
    film = layers.ConvLSTM2D(3, 3, padding="same", return_sequences=True, return_state=True)(x)
    small = layers.ConvLSTM2D(2, (2, 3), strides=2, activation="relu", go_backwards=True, use_bias=False)(x)
    lines = layers.ConvLSTM1D(2, 3, recurrent_activation="hard_sigmoid")(y)
    yield "films", Model([x, y, z], [*film, small, lines, layers.ConvLSTM3D(2, 2, padding="same")(z)])


def image_models() -> Iterator[tuple[str, Any]]:
    x = Input((6, 9, 2), name="image")
    sizes = [
        layers.Resizing(4, 5),
        layers.Resizing(11, 13, interpolation="bicubic"),
        layers.Resizing(7, 4, interpolation="nearest"),
        layers.Resizing(4, 4, crop_to_aspect_ratio=True),
        layers.Resizing(5, 5, pad_to_aspect_ratio=True, fill_value=0.5),
        layers.CenterCrop(3, 4),
        layers.CenterCrop(8, 8),
        layers.RandomCrop(3, 3),
        layers.AdaptiveAveragePooling2D((4, 5)),
        layers.AdaptiveMaxPooling2D((4, 5)),
        layers.SpectralNormalization(layers.Conv2D(3, 2)),
    ]
    yield "sizes", Model(x, [layer(x) for layer in sizes])
    ids, numbers = Input((4,), dtype="int32", name="ids"), Input((3,), name="numbers")
    bins = {"bin_boundaries": [-0.5, 0.0, 1.5]}
    yield (
        "categories",
        Model(
            [ids, numbers],
            [
                *(layers.CategoryEncoding(11, output_mode=mode)(ids) for mode in ("one_hot", "multi_hot", "count")),
                *(layers.Discretization(**bins, output_mode=mode)(numbers) for mode in ("int", "one_hot")),
            ],
        ),
    )


def mask_models() -> Iterator[tuple[str, Any]]:
    """Masks of steps that layers make, keep, join and use."""
    ids, film = Input((6,), dtype="int32", name="ids"), Input((6, 4), name="masked")
    other, given = Input((6, 4), name="other"), Input((6,), dtype="bool", name="mask")
    x = layers.Embedding(11, 4, mask_zero=True)(ids)
    y = layers.Masking(0.5)(film)
    steps = layers.LSTM(3, return_sequences=True)(layers.Dropout(0.5)(layers.Dense(5, activation="tanh")(x)))
    both = layers.Bidirectional(layers.GRU(2, return_sequences=True))(y)
    cells = [layers.LSTMCell(3), layers.GRUCell(2)]
    merges = [kind()([x, y]) for kind in (layers.Add, layers.Multiply, layers.Maximum, layers.Minimum)]
    merges += [kind()([y, other]) for kind in (layers.Average, layers.Multiply, layers.Maximum)]
    mean = layers.GlobalAveragePooling1D()
    # These layers take the masks off their operands, which have no other use therefore.
    heads = layers.MultiHeadAttention(2, 3)(layers.Dense(3)(steps), layers.Embedding(11, 4, mask_zero=True)(ids))
    groups = layers.GroupQueryAttention(3, 4, 2)(layers.Masking(0.5)(film), other, use_causal_mask=True)
    outputs = [
        steps,
        layers.GRU(3)(steps),
        layers.SimpleRNN(3, go_backwards=True, return_sequences=True, zero_output_for_mask=True)(y),
        *layers.LSTM(2, return_state=True)(y),
        layers.LSTM(2)(other, mask=given),
        both,
        layers.Bidirectional(layers.LSTM(2), merge_mode="sum")(both),
        layers.RNN(cells, return_sequences=True, go_backwards=True)(y),
        *merges,
        *(mean(each) for each in (merges[0], merges[2], merges[4], y)),
        mean(layers.Concatenate()([x, other])),
        mean(layers.Concatenate(axis=1)([x, other])),
        mean(layers.TimeDistributed(layers.Dense(2))(x)),
        mean(layers.Conv1D(2, 2)(x)),
        layers.Attention()([x, y]),
        layers.AdditiveAttention()([x, y, other], use_causal_mask=True),
        mean(heads),
        mean(groups),
    ]
    yield "masks", Model([ids, film, other, given], outputs)


def models() -> Iterator[tuple[str, Any]]:
    yield from mask_models()
    yield from step_models()
    yield from image_models()
    for padding in ("valid", "same"):
        x = Input((9, 8, 3), name="image")
        y = layers.Conv2D(4, (3, 2), strides=2, padding=padding, activation="relu")(x)
        y = layers.BatchNormalization()(y)
        z = layers.DepthwiseConv2D(2, depth_multiplier=2, padding=padding, activation="elu")(y)
        z = layers.Conv2DTranspose(4, 3, strides=2, padding=padding, activation="selu")(z)
        z = layers.SeparableConv2D(5, 3, padding=padding, activation="silu")(z)
        z = layers.MaxPooling2D(2, padding=padding)(z)
        z = layers.AveragePooling2D(2, strides=1, padding=padding)(z)
        yield f"images_{padding}", Model(x, [z, layers.GlobalAveragePooling2D()(y), layers.GlobalMaxPooling2D()(z)])
    yield "transposed_gap", Sequential([Input((4, 3, 2)), layers.Conv2DTranspose(3, 2, strides=3, padding="valid")])
    yield "transposed_gap_same", Sequential([Input((4, 3, 2)), layers.Conv2DTranspose(3, 2, strides=3, padding="same")])
    yield (
        "series",
        Sequential(
            [
                Input((12, 4)),
                layers.Conv1D(6, 3, padding="causal", dilation_rate=2, activation="gelu"),
                layers.Conv1D(4, 3, groups=2, activation="softplus"),
                layers.MaxPooling1D(2),
                layers.UpSampling1D(2),
                layers.ZeroPadding1D((1, 2)),
                layers.Cropping1D((1, 0)),
                layers.LayerNormalization(),
                layers.SeparableConv1D(4, 3, padding="same", activation="softsign"),
                layers.AveragePooling1D(3, strides=1, padding="same"),
                layers.Flatten(),
                layers.Dense(5, activation="softmax"),
            ]
        ),
    )
    yield from attention_models()
    x, y = Input((6,), name="left"), Input((6,), name="right")
    shared = layers.Dense(4, activation="tanh")
    a, b = shared(x), shared(y)
    parts = [kind()([a, b]) for kind in (layers.Add, layers.Subtract, layers.Multiply, layers.Average)]
    parts += [kind()([a, b]) for kind in (layers.Maximum, layers.Minimum)]
    yield "shared", Model([x, y], layers.Concatenate()(parts))
    yield (
        "activations",
        Model(
            x := Input((7,)),
            [
                layers.Activation(name)(x)
                for name in ("relu6", "leaky_relu", "mish", "hard_sigmoid", "hard_silu", "exponential", "log_softmax")
            ]
            + [layers.ReLU(1.0, 0.1, 0.2)(x), layers.LeakyReLU(0.2)(x), layers.PReLU(alpha_initializer="normal")(x)]
            + [layers.ELU(0.5)(x), layers.Softmax()(x)],
        ),
    )
    ids = Input((5,), dtype="int32", name="ids")
    z = layers.Embedding(11, 6)(ids)
    steps = layers.LSTM(4, return_sequences=True)(z)
    yield (
        "recurrent",
        Model(
            ids,
            [
                layers.LSTM(3)(steps),
                layers.GRU(3, return_sequences=True, go_backwards=True)(z),
                layers.SimpleRNN(3)(z),
                layers.Bidirectional(layers.LSTM(3, return_sequences=True))(z),
                layers.Bidirectional(layers.GRU(2), merge_mode="sum")(z),
                *layers.LSTM(2, return_state=True)(z),
            ],
        ),
    )
    inner = Sequential([Input((6,)), layers.Dense(5, activation="relu"), layers.BatchNormalization()])
    outer = Sequential([Input((2, 3)), layers.Reshape((6,)), inner, layers.Dropout(0.5), layers.Dense(2)])
    yield "nested", outer
    x = Input((None, 4), name="steps")
    y = layers.Permute((2, 1))(layers.Rescaling(0.5, offset=1.0)(x))
    yield "open_size", Model(x, layers.Permute((2, 1))(layers.UnitNormalization(axis=1)(y)))
    normal = layers.Normalization(mean=[1.0, 2.0, 3.0], variance=[4.0, 1.0, 9.0])
    yield "normalized", Sequential([Input((3,)), normal, layers.RepeatVector(2)])
    yield (
        "volumes",
        Sequential(
            [
                Input((4, 5, 6, 2)),
                layers.Conv3D(3, 2, padding="same"),
                layers.MaxPooling3D(2),
                layers.ZeroPadding3D(1),
                layers.Cropping3D(((1, 0), (0, 1), (1, 1))),
                layers.UpSampling3D(2),
            ]
        ),
    )
    yield (
        "resized",
        Sequential(
            [
                Input((3, 4, 2)),
                layers.UpSampling2D((2, 3), interpolation="bilinear"),
                layers.ZeroPadding2D(((1, 0), (2, 1))),
                layers.Cropping2D(1),
            ]
        ),
    )


def trained(random: Any, name: str, weight: Any) -> Any:
    """Returns random numbers for a weight, as after training: the first biases are 0."""
    drawn = random.normal(size=weight.shape) * 0.5
    return (np.abs(drawn) if "variance" in name or weight.ndim == 0 else drawn).astype(weight.dtype)


def main() -> None:
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    chosen = sys.argv[1:]
    stored: dict[str, Any] = dict(np.load(MODELS)) if chosen else {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models():
            if chosen and name not in chosen:
                continue
            model.set_weights(
                [trained(random, v.name, w) for v, w in zip(model.weights, model.get_weights(), strict=True)]
            )
            inputs = []
            for each in model.inputs:
                shape = [3, *(5 if size is None else size for size in each.shape[1:])]
                is_mask = each.name == "mask"
                drawn = random.integers(0, 11, shape) if each.dtype == "int32" else random.normal(size=shape)
                drawn = (drawn > -0.7) if is_mask else drawn
                if name == "masks" and each.dtype == "int32":
                    drawn[:, 0] += drawn[:, 0] == 0  # the rows of attention have a step that counts
                    drawn[:, 2:4] = [[0, 3], [4, 0], [0, 0]]
                elif each.name == "masked":
                    drawn[0, 1] = drawn[0, 5] = drawn[1, 2:] = drawn[2, 3] = 0.5
                inputs.append(drawn.astype(each.dtype))
            found = model.predict_on_batch(inputs if len(inputs) > 1 else inputs[0])
            for suffix in (".keras", ".h5"):
                path = Path(folder) / f"{name}{suffix}"
                model.save(path)
                stored[f"{name}/file{suffix}"] = np.frombuffer(path.read_bytes(), np.uint8)
            stored |= {f"{name}/input{number}": array for number, array in enumerate(inputs)}
            results = found if isinstance(found, list) else [found]
            stored |= {f"{name}/output{number:02}": np.asarray(array) for number, array in enumerate(results)}
        if chosen:
            return write(stored)
        code = Sequential([Input((3,)), layers.Lambda(lambda x: x * 2)])
        code.save(Path(folder) / "lambda.keras")
        stored["lambda"] = np.frombuffer((Path(folder) / "lambda.keras").read_bytes(), np.uint8)
        unknown = Sequential([Input((800,)), layers.MelSpectrogram()])
        unknown.save(Path(folder) / "unknown.keras")
        stored["unknown"] = np.frombuffer((Path(folder) / "unknown.keras").read_bytes(), np.uint8)
    write(stored)


def write(stored: dict[str, Any]) -> None:
    np.savez_compressed(MODELS, **stored)
    print(f"{MODELS}: {MODELS.stat().st_size} bytes")


if __name__ == "__main__":
    main()
