"""The tiler: reads structured ops by their own index maps and bodies, and writes register-tiled vector code for them."""
