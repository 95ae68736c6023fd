"""The Python API of graphs, `nacre.graph`: reading, querying, measuring and changing models.

    import nacre

    graph = nacre.graph.read("model.nacre")          # level=2: after the passes of -O2
    graph.find("gelu", scope="encoder.*")            # by operator, name, block, or a function
    graph.costs(B=1, T=128).bottlenecks(5)           # operations, bytes, memory, roofline times
    faster = graph.replace(graph.find("gelu"), lambda b, x: b.gelu(x, approximate="tanh"))
    faster.compile()(ids, mask)                      # or faster.run(ids, mask), the reference interpreter
    faster.save("faster.nacre")                      # text that can be read again

Graphs are immutable: every change returns a new graph, which has been verified. Notebooks display graphs, nodes and
costs.
"""

from __future__ import annotations

from .compiler.tools.explorer.graph import Graph
from .compiler.tools.explorer.node_costs import Costs, Machine, NodeCost
from .compiler.tools.explorer.nodes import GraphNode, Nodes
from .compiler.tools.explorer.read import read

__all__ = ["Costs", "Graph", "GraphNode", "Machine", "NodeCost", "Nodes", "read"]
