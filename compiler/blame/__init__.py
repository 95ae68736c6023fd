"""Who is to blame for a fault of the compiler, and how small a model shows it: `nacre bisect` and `nacre reduce`."""
