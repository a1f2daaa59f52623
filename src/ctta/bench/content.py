"""Digests of every image and label, which identify the data of a run; computed once and cached."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch

from ctta._system.digests import remembered, sha256_of_all
from ctta.datasets.arrays import Images
from ctta.datasets.domain import Domain, Labelled
from ctta.datasets.pictures import Pictures
from ctta.errors import BadData

_CHUNK = 1 << 26  # bytes hashed at a time


def digest_of(images: Images, file: Path | None = None) -> str:
    """Identify labelled images by their content, regardless of the file they are in.

    Args:
        images: The images.
        file: The file they were read from; the digest is then cached until the file changes.
    """
    if file is None:
        return _digest(images)
    return remembered("pixels", [file], lambda: _digest(images))


def digest_of_domains(domains: Sequence[Domain]) -> str:
    """Return a digest of the names, severities, labels and images of domains, in their order.

    Args:
        domains: The domains; a different order gives a different digest.
    """
    whole = hashlib.sha256()
    for domain in domains:
        whole.update(f"{domain.name!a} {domain.severity} {len(domain)}\n".encode())
        whole.update(domain.images.y.numpy().tobytes())
        try:
            whole.update(_content(domain).encode())
        except OSError as error:
            raise BadData(f"{error.filename} cannot be read: {error.strerror}.") from error
    return whole.hexdigest()


def _content(domain: Domain) -> str:
    images = domain.images
    if isinstance(images, Pictures):
        return remembered("files", images.paths, lambda: sha256_of_all(images.paths))
    if not domain.files:
        return _digest(images)
    part = f"pixels of {domain.name!a} {domain.severity} {len(domain)}"
    return remembered(part, domain.files, lambda: _digest(images))


def _digest(images: Labelled) -> str:
    """The SHA-256 of pixels (N, C, H, W) and labels, computed in chunks."""
    first = images.take(slice(0, 1)).x
    sha = hashlib.sha256()
    _, channels, height, width = first.shape
    if first.dtype != torch.uint8 or channels != 3 or height != width:
        # The same bytes could be 3 x 16 x 64 or 3 x 32 x 32 pixels. Square colour images, as in all published records,
        # are identified by their bytes only.
        sha.update(f"{first.dtype} {len(images)} {channels} {height} {width}\n".encode())
    count = max(1, _CHUNK // max(1, first.numel() * first.element_size()))
    for begin in range(0, len(images), count):
        sha.update(images.take(slice(begin, begin + count)).x.contiguous().numpy().data)
    sha.update(images.y.numpy().data)
    return sha.hexdigest()
