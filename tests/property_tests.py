"""`given` and `settings` of Hypothesis without limits to the time of an example.

A busy machine stops a process for longer than the limits, which are a fifth of a second for an example, and a second
for drawing ten of them.
"""

from hypothesis import HealthCheck, given, settings

__all__ = ["given", "settings"]

settings.register_profile("any time", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any time")
