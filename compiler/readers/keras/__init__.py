"""The reader of Keras models: the configuration of layers to the graph IR, with weights from HDF5."""
