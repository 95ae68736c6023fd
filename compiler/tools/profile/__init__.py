"""Measurements of compiled models: latencies, profiles, traces, and the peaks of the machine."""
