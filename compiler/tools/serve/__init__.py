"""`nacre serve`: compiled models behind the protocols of OpenAI and KServe."""
