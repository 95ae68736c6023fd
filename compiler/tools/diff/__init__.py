"""`nacre diff`: compares two builds, or a build and a reference, tensor by tensor."""
