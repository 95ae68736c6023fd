"""Are the numbers right? What a graph may compute, and which part of a build is the first to compute something else."""
