"""The C sources of the runtime that reach GPUs; artifacts with code for one carry them."""
