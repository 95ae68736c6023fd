"""`nacre generate` and `nacre chat`: text from compiled language models, with the tokenizers that they carry."""
