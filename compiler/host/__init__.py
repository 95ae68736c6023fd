"""Host-side code: entries, their memory plans, and the calls of kernels in them."""
