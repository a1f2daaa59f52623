"""Run the scripts of examples/ and write docs/tutorials/*.md from them: code, output and figures.

python scripts/tutorials.py [NAME ...]    run the scripts, or those named, and write their pages
python scripts/tutorials.py --check       run nothing; exit 1 if a page does not show its script as it is now

A script is shown in parts: its docstring as text, and every comment that starts with a number, "# 1. Title. Text", as a
heading and the text above the code that follows it.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
PAGES = ROOT / "docs" / "tutorials"
TITLES = {
    "drifting_stream": "Your own CNN on a drifting stream",
    "vision_transformer": "A vision transformer of Hugging Face",
    "compare_methods": "Comparing methods and reading the report",
    "new_method": "A new method from scratch",
}
#: What a reader needs to know about a figure, by the name of its file.
CAPTIONS = {
    "compare_methods": "The mean error of each method. The black ticks on a bar are its two seeds, not an error bar; "
    "± is their standard deviation.",
    "drifting_stream": "The error along the stream. The grey steps are the severity of the corruption.",
}
_OUTPUT = "## Output"


def main(arguments: list[str]) -> int:
    """Write or check the pages.

    Args:
        arguments: The command line.
    """
    if "--check" in arguments:
        stale = [name for name in TITLES if not is_fresh(name)]
        print("\n".join(f"docs/tutorials/{name}.md is out of date" for name in stale), end="\n" if stale else "")  # noqa: T201
        return 1 if stale else 0
    for name in arguments or TITLES:
        write(name)
    return 0


def is_fresh(name: str) -> bool:
    """Return whether a page shows its script as it is now; its output may be from another machine.

    Args:
        name: The name of the script.
    """
    page = PAGES / f"{name}.md"
    return page.exists() and page.read_text(encoding="utf-8").partition(_OUTPUT)[0] == shown(name)


def shown(name: str) -> str:
    """Return the part of a page that comes from the text of its script.

    Args:
        name: The name of the script.
    """
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    about = ast.get_docstring(ast.parse(text)) or ""
    commands = [line for line in about.splitlines() if line.startswith(("python ", "ctta "))]
    prose = "\n".join(line for line in about.splitlines() if line not in commands).strip()
    body = text.partition('"""\n\n')[2]
    return "\n".join(
        [
            f"# {TITLES[name]}\n",
            f"[examples/{name}.py](../../examples/{name}.py); this page is written by `python scripts/tutorials.py`.\n",
            prose + "\n",
            "```sh\n" + "\n".join(commands) + "\n```\n",
            _in_parts(body),
            "",
        ]
    )


def write(name: str) -> None:
    """Run a script and write its page and figures.

    Args:
        name: The name of the script.
    """
    with tempfile.TemporaryDirectory(prefix="ctta-tutorial-") as made:
        folder = Path(made)
        run = subprocess.run(
            [sys.executable, str(EXAMPLES / f"{name}.py"), str(folder)],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            # One thread and drawings without dates and random names, so that little changes from run to run.
            env={**os.environ, "OMP_NUM_THREADS": "1", "SOURCE_DATE_EPOCH": "0", "MPLBACKEND": "svg"},
        )
        if run.returncode:
            raise SystemExit(f"{name}.py failed:\n{run.stderr}")
        figures = sorted(folder.glob("*.svg"))
        PAGES.mkdir(exist_ok=True, parents=True)
        for figure in figures:
            _unify_ids(figure, PAGES / figure.name)
    output = run.stdout.replace(str(folder), "out").rstrip()
    parts = [shown(name) + _OUTPUT, f"```text\n{output}\n```"]
    for figure in figures:
        parts += [f"![{TITLES[name]}]({figure.name})", CAPTIONS[figure.stem]]
    (PAGES / f"{name}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _in_parts(body: str) -> str:
    """Split code at its numbered comments; the first sentence of each is a heading, the others go before its code."""
    parts: list[str] = []
    for piece in re.split(r"^(?=# \d+\. )", body, flags=re.MULTILINE):
        lines = piece.rstrip().splitlines()
        said = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
        numbered = re.match(r"# \d+\. ", piece)
        words = " ".join(line.lstrip("# ").strip() for line in lines[:said]) if numbered else ""
        code = "\n".join(lines[said:] if words else lines).strip("\n")
        if heading := re.fullmatch(r"(\d+\. .+?)(?:\. (.+)|\.?)", words):
            parts += [f"## {heading[1]}\n", *([f"{heading[2]}\n"] if heading[2] else [])]
        parts += [f"```python\n{code}\n```\n"] if code else []
    return "\n".join(parts)


def _unify_ids(drawing: Path, target: Path) -> None:
    """Copy a drawing with ids that depend only on their order, not on random numbers."""
    text = re.sub(r" *<dc:date>.*?</dc:date>\n", "", drawing.read_text(encoding="utf-8"), flags=re.DOTALL)
    for number, name in enumerate(dict.fromkeys(re.findall(r'id="([mpC]\w*[0-9a-f]{10})"', text))):
        text = text.replace(name, f"{name[0]}{number}")
    target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
