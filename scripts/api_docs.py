"""Write docs/api.md, the API reference, from the docstrings.

python scripts/api_docs.py            write the page
python scripts/api_docs.py --check    write nothing; exit 1 if the page is out of date
"""

from __future__ import annotations

import sys

from docgen.api_page import page
from docgen.source import ROOT

PATH = ROOT / "docs" / "api.md"


def main(arguments: list[str]) -> int:
    """Write or check the page.

    Args:
        arguments: The command line.
    """
    fresh = PATH.exists() and PATH.read_text(encoding="utf-8") == page()
    if not fresh and "--check" not in arguments:
        PATH.write_text(page(), encoding="utf-8")
        return 0
    return 0 if fresh else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
