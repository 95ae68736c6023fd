"""Checkpoints behind one interface: safetensors, also sharded, GGUF, npz, npy, `torch.save`, and arrays in memory."""

from .checkpoint import Checkpoint
from .memory import open_arrays
from .opening import open_checkpoint, open_tensors

__all__ = ["Checkpoint", "open_arrays", "open_checkpoint", "open_tensors"]
