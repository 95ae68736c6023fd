"""Measurements of compiled models: how long calls take, where their time goes, and what the machine could do."""
