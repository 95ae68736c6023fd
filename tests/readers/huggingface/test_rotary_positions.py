"""Scaled rotary positions: the divisors of the frequencies of a head of 16 numbers, and the factor of its scores.

The numbers are those of transformers 5.23 for the same parameters, to the rounding of f32.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacre.compiler.readers.huggingface.config_json import Configuration
from nacre.compiler.readers.huggingface.positions import read_rotary

LENGTH = "original_max_position_embeddings"
LATE = (1.0, 1.0, 1.0, 1.322314, 1.95122, 3.72093, 40.0, 40.0)
YARN: dict[str, Any] = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, LENGTH: 64}
LONG = YARN | {"factor": 40.0, LENGTH: 4096}
CASES: dict[str, tuple[dict[str, Any], tuple[float, ...], float]] = {
    "rounded bounds": (YARN, (1.0, 1.333333, 2.0, *[4.0] * 5), 1.1386294),
    "exact bounds": (YARN | {"truncate": False}, (1.0, 1.592417, 3.906975, *[4.0] * 5), 1.1386294),
    "other bounds": (
        YARN | {"rope_theta": 500.0, "factor": 8.0, LENGTH: 512, "beta_fast": 16, "beta_slow": 2},
        (1.0, 1.0, 1.0, 1.411765, 2.4, 8.0, 8.0, 8.0),
        1.2079442,
    ),
    "two scales": (LONG | {"mscale": 1.0, "mscale_all_dim": 0.7}, LATE, 1.0879546),
    "one scale": (LONG | {"mscale": 0.7}, LATE, 1.3688879),
    "a given scale": (YARN | {"factor": 2.0, LENGTH: 128, "attention_factor": 1.5}, (1.0, 1.2, 1.5, *[2.0] * 5), 1.5),
    "bands": (
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, LENGTH: 64},
        (1.0, 1.293976, 7.667385, *[8.0] * 5),
        1.0,
    ),
    "dynamic": ({"rope_type": "dynamic", "rope_theta": 500.0, "factor": 4.0}, (), 1.0),
    "linear": ({"rope_type": "linear", "factor": 2.5}, (2.5,) * 8, 1.0),
}


@pytest.mark.parametrize("name", CASES)
def test_scaled_positions(name: str) -> None:
    parameters, factors, scale = CASES[name]
    values = {"rope_parameters": parameters, "max_position_embeddings": 4096}
    configuration = Configuration(Path("config.json"), values, None)  # type: ignore[arg-type]  # it has no weights
    found = read_rotary(configuration, 16)
    np.testing.assert_allclose(found.factors, factors, rtol=2e-6)
    np.testing.assert_allclose(found.scale, scale, rtol=1e-6)
