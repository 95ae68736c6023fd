"""The pass `fuse`: groups of nodes that become one kernel each."""
