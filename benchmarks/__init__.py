"""What a step, an adapter and a start cost, side by side with what they could cost at least.

    python -m benchmarks [--only NAME ...] [--rounds N] [--quick] [--json FILE]

`corruptions.py` stands alone: it compares with a package that needs an environment of its own.
"""
