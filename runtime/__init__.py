"""What is needed to run an artifact: the C sources that go into every one (see ABI.md), and the Python loader."""
