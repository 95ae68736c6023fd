"""Elementary functions as calls in place of operations: of f32 in `vector_math`, of f64 in `double_math`."""
