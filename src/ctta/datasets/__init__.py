"""Datasets by name. Importing this package does not import torch."""

from ctta.datasets.catalog import DATASETS, get_dataset, locate, register
from ctta.datasets.dataset import Dataset, Wanted

__all__ = ["DATASETS", "Dataset", "Wanted", "get_dataset", "locate", "register"]
