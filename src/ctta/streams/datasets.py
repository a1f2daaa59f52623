"""Readers of benchmarks and of a user's own images; `ctta.datasets` has the same by name."""

from ctta.datasets.cifar_c import cifar10_c, cifar100_c, own_c
from ctta.datasets.domainnet import domainnet126
from ctta.datasets.folder import image_folder, own_arrays
from ctta.datasets.imagenet_c import imagenet_c
from ctta.datasets.pictures import Pictures

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
