"""Model sources of known architectures, which GGUF files and folders of Hugging Face configure."""
