"""Random graphs of what kernels are made of, compiled and compared with the reference interpreter."""
