"""The reader of folders of Hugging Face: `config.json` configures a model source, safetensors hold its weights."""
