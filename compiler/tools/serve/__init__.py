"""`nacre serve`: a compiled language model behind the completions and chat protocol of OpenAI."""
