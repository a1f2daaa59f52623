"""Measure the cost of a step, of an adapter and of a start, next to lower bounds and baselines.

    python -m benchmarks [--only NAME ...] [--rounds N] [--quick] [--json FILE]

`corruptions.py` is a separate program: it compares with a package that needs its own environment.
"""
