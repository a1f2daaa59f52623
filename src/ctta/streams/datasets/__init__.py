"""Benchmarks and a user's own images in the layouts they are published in, read when they are needed."""

from ctta.streams.datasets.domainnet import domainnet126
from ctta.streams.datasets.imagenet_c import imagenet_c
from ctta.streams.datasets.own import image_folder, own_arrays
from ctta.streams.datasets.pictures import Pictures
from ctta.streams.datasets.stacked import cifar10_c, cifar100_c, own_c

__all__ = [
    "Pictures",
    "cifar10_c",
    "cifar100_c",
    "domainnet126",
    "image_folder",
    "imagenet_c",
    "own_arrays",
    "own_c",
]
