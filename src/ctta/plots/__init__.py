"""Plots of records and steps; each takes plain values.

Plots of a page are drawn by `ctta.plots.canvas`, the paper's figures by matplotlib.
"""
