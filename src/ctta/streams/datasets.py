"""Readers of benchmarks and of a user's own images; `ctta.datasets` has the same by name."""

from ctta.datasets.cifar10_1 import cifar10_1
from ctta.datasets.cifar_c import cifar10_c, cifar100_c, own_c
from ctta.datasets.domainnet import domainnet126
from ctta.datasets.folder import image_folder, own_arrays
from ctta.datasets.imagenet_c import imagenet_c
from ctta.datasets.imagenet_c_bar import imagenet_c_bar
from ctta.datasets.imagenet_variants import imagenet_a, imagenet_r, imagenet_sketch, imagenet_v2
from ctta.datasets.pacs import pacs
from ctta.datasets.pictures import Pictures

__all__ = [
    "Pictures",
    "cifar10_1",
    "cifar10_c",
    "cifar100_c",
    "domainnet126",
    "image_folder",
    "imagenet_a",
    "imagenet_c",
    "imagenet_c_bar",
    "imagenet_r",
    "imagenet_sketch",
    "imagenet_v2",
    "own_arrays",
    "own_c",
    "pacs",
]
