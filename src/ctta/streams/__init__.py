"""Streams of labelled batches, and the protocols that order them."""

from ctta.datasets.arrays import Images
from ctta.datasets.corrupted import corrupted
from ctta.datasets.digits import Digits, digits
from ctta.datasets.domain import Domain, Labelled, Origin
from ctta.streams import datasets
from ctta.streams.batch import Batch
from ctta.streams.ccc import ccc
from ctta.streams.ccc_accuracy import SourceAccuracy
from ctta.streams.labels import mixed_correlated, recurring_correlated, sorted_by_label
from ctta.streams.protocols import (
    clean,
    concatenate,
    continual,
    correlated,
    gradual,
    mixed,
    random_orders,
    recurring,
    then,
)
from ctta.streams.stream import Segment, Stream
from ctta.streams.visits import random_visits

__all__ = [
    "Batch",
    "Digits",
    "Domain",
    "Images",
    "Labelled",
    "Origin",
    "Segment",
    "SourceAccuracy",
    "Stream",
    "ccc",
    "clean",
    "concatenate",
    "continual",
    "correlated",
    "corrupted",
    "datasets",
    "digits",
    "gradual",
    "mixed",
    "mixed_correlated",
    "random_orders",
    "random_visits",
    "recurring",
    "recurring_correlated",
    "sorted_by_label",
    "then",
]
