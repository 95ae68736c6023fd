"""Model sources for GGUF files."""
