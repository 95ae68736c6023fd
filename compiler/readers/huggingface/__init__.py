"""The reader of Hugging Face folders: `config.json` configures a model source, safetensors hold its weights."""
