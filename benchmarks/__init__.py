"""Benchmarks: every speed we claim is a ratio measured in one run, printed by `python -m benchmarks.NAME`."""
