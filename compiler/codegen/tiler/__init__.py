"""The tiler: reads structured ops by their index maps and bodies, and writes register-tiled vector code for them."""
