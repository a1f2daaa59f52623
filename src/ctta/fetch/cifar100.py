"""Download CIFAR-100 as two npz files from its authors' binary archive."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ctta.datasets import cifar100
from ctta.fetch.download import Progress, download
from ctta.fetch.unpack import unpack

URL = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
FILE = "cifar-100-binary.tar.gz"
MD5 = "03b5dce01913d631647c71ecec9e9cb8"
SIZE = 168_513_733


def fetch_cifar100(folder: Path, *, progress: Progress | None = None) -> list[Path]:
    """Write `cifar100_test.npz` and `cifar100_train.npz`.

    Args:
        folder: Where to put the files.
        progress: Called with the number of bytes downloaded so far and the total, if known.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".cifar100.", suffix=".tmp") as work:
        archive = download(URL, folder / FILE, md5=MD5, progress=progress)
        return cifar100.convert_binary(unpack(archive, Path(work))[0], folder)
