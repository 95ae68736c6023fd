"""The runtime of artifacts: the C sources that are part of every artifact (see ABI.md), and the Python loader."""
