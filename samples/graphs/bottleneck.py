"""Finds the most expensive operations of a sentence encoder, replaces them, and measures the speed and the error.

    python samples/graphs/bottleneck.py FOLDER [NEW.nacre]

FOLDER holds `config.json` and `model.safetensors` of all-MiniLM-L6-v2: `~/.cache/nacre/minilm`, once the sample
`minilm` has run. The changed model is written to NEW.nacre, by default `minilm_tanh.nacre`. The cells (`# %%`) may be
run one after another in a notebook, where graphs, nodes and costs show themselves as tables.
"""

# %% The model, as it is written
import statistics
import sys
import time
from pathlib import Path

import nacre
import numpy as np

FOLDER = Path(sys.argv[1])
NEW = Path(sys.argv[2] if len(sys.argv) > 2 else "minilm_tanh.nacre")
SOURCE = Path(__file__).parents[1] / "minilm" / "minilm.nacre"

graph = nacre.graph.read(SOURCE, weights=FOLDER)
print(graph)

# %% The compiled graph, and the kernels that take longest by the roofline model of this or another machine
machine = nacre.graph.Machine(flops_per_second=100e9, bytes_per_second=20e9)
tokens = min(128, graph.dims["T"][1])
costs = nacre.graph.read(SOURCE, weights=FOLDER, level=2).costs(machine, B=1, T=tokens)
print(f"{costs.flops:,} operations on {costs.bytes:,} bytes, {costs.peak_memory:,} bytes of tensors at once")
for cost in costs.bottlenecks(3):
    print(f"{cost.seconds / costs.seconds:6.1%}  {cost}")

# %% Every layer computes the error function in its largest kernel. The formula with tanh approximates it.
gelu = graph.find("gelu")
changed = graph.replace(gelu, lambda b, x: b.gelu(x, approximate="tanh"))
print(f"{', '.join(gelu.names)} in {gelu[0].scope}: {changed.find('gelu')[0]}")

# %% The times of both models. They are called in turns, so that disturbances affect both alike
ids = np.random.default_rng(0).integers(0, 50, (1, tokens))
arrays = ids, np.ones_like(ids)
models = {"erf": graph.compile(), "tanh": changed.compile()}
seconds: dict[str, list[float]] = {name: [] for name in models}
for _ in range(30):
    for name, model in models.items():
        start = time.perf_counter()
        model(*arrays)
        seconds[name].append(time.perf_counter() - start)
medians = {name: statistics.median(times) for name, times in seconds.items()}
print(", ".join(f"{name}: {median * 1e3:.3f} ms" for name, median in medians.items()))
print(f"tanh takes {medians['tanh'] / medians['erf']:.2f} of the time")

# %% The errors of the embeddings, beside the errors by rounding alone
exact = graph.run(*arrays, float64=True)
for name, model in models.items():
    print(f"{name}: largest error {np.abs(model(*arrays) - exact).max():.2g}")

# %% The changed model as text, which can be read, checked and compiled again
changed.save(NEW)
print(f"{NEW}: {len(nacre.check(NEW))} faults")
