"""Speed and memory, side by side: `python -m benchmarks --help`."""
