"""Model sources of known architectures, configured by GGUF files and Hugging Face folders."""
