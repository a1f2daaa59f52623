"""Metadata that depends on the address of the repository, which pyproject.toml names once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"!\[([^\]]*)\]\((?!https?://)([^)]+)\)")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?://|#)([^)]+)\)")


class RepositoryHook(MetadataHookInterface):
    """Sets the addresses of the project and the text of its page on PyPI."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add what is dynamic to the metadata.

        Args:
            metadata: The metadata of the project, which is changed.
        """
        repository = self.config["repository"]
        metadata["urls"] = urls(repository)
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute_links(text, repository)}


def urls(repository: str) -> dict[str, str]:
    """The addresses that the package's page shows.

    Args:
        repository: The address of the repository.
    """
    return {
        "Homepage": repository,
        "Documentation": f"{repository}/tree/main/docs",
        "Issues": f"{repository}/issues",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
    }


def absolute_links(text: str, repository: str) -> str:
    """Make links and pictures absolute that are relative in the repository.

    Args:
        text: The README.
        repository: The address of the repository.
    """
    text = _PICTURE.sub(rf"![\1]({repository}/raw/main/\2)", text)
    return _LINK.sub(rf"[\1]({repository}/blob/main/\2)", text)
