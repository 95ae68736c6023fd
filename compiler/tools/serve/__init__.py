"""`nacre serve`: compiled models as services, with the protocols of OpenAI and KServe."""
