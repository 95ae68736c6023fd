"""The output of `nacre accuracy`: data, text and a picture of the errors of a model."""
