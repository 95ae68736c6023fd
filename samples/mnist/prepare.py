"""Splits 5000 images of MNIST into train.npz and test.npz, of 4000 and 1000 images, in the current folder.

    python samples/mnist/prepare.py mnist_5k.npz

The file holds `images`, u8[5000, 28, 28], and `labels`, u8[5000].
"""

from __future__ import annotations

import sys

import numpy as np

TRAINING = 4000


def main() -> None:
    with np.load(sys.argv[1]) as file:
        images, labels = file["images"], file["labels"].astype(np.int64)
    order = np.random.default_rng(0).permutation(len(images))
    for name, chosen in (("train", order[:TRAINING]), ("test", order[TRAINING:])):
        np.savez(f"{name}.npz", image=images[chosen], label=labels[chosen])
        print(f"{name}.npz: {len(chosen)} images")


if __name__ == "__main__":
    main()
