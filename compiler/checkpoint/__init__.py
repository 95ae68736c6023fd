"""Readers of checkpoints: safetensors, also sharded, npz and npy, behind one interface."""

from .checkpoint import Checkpoint
from .opening import open_checkpoint, open_tensors

__all__ = ["Checkpoint", "open_checkpoint", "open_tensors"]
