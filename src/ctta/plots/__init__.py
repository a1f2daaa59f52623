"""Plots of records and steps; each takes plain values and gives a matplotlib figure."""
