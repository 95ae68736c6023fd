"""`nacre.graph`: reads, queries, measures, changes, runs and saves graphs."""
