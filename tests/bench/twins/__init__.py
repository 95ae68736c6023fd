"""The same model for the peers, made from Nacre's graph, so that nobody computes anything else.

`onnx_twin` writes it as ONNX, `torch_twin` and `jax_twin` as functions; each is a table of the operators that occur.
"""
