"""Lower precision: policies that assign dtypes to weights and activations, calibration, and their application."""
