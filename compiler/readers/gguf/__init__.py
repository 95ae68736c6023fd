"""The reader of GGUF files: metadata chooses a model source and its configuration, the tensors are its weights."""
