"""Child processes that generate code, and the cache of the objects that they return."""
