"""The tiler: reads structured ops by their index maps and bodies, and emits register-tiled vector code."""
