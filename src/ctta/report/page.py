"""Write run records as one HTML file that refers to nothing outside itself; its script sorts and filters."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from ctta._system.files import write_atomically
from ctta.errors import BadData, MissingExtra
from ctta.report.embed import embed
from ctta.report.groups import Group, read_groups
from ctta.report.sections import Figure, plain, sections_of
from ctta.version import __version__

TITLE = "Continual test-time adaptation"


def require_extras() -> None:
    """Raise MissingExtra if a package that the report needs is not installed."""
    try:
        import jinja2  # noqa: F401, PLC0415 - an optional dependency
    except ModuleNotFoundError as error:
        raise MissingExtra("jinja2", "demo") from error


def write_report(folders: Sequence[Path], out: Path, *, title: str = TITLE) -> int:
    """Write a page of all runs below some folders; the file is replaced atomically.

    Args:
        folders: Folders of run records, or single records; every ``figures/*.svg`` below them is embedded too.
        out: The page.
        title: Title of the page.

    Returns:
        The number of runs.
    """
    require_extras()
    groups = read_groups(folders)
    write_atomically(out, page(groups, list(_found_figures(folders)), title=title).encode())
    return sum(len(group.records) for group in groups)


def page(groups: Sequence[Group], figures: Sequence[Figure] = (), *, title: str = TITLE) -> str:
    """Render a page; the same input gives the same text.

    Args:
        groups: Groups of comparable runs.
        figures: Drawings made elsewhere, shown after the groups.
        title: Title of the page.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415
    from markupsafe import Markup  # noqa: PLC0415

    folder = Path(__file__).parent / "templates"
    environment = Environment(
        loader=FileSystemLoader(folder),
        # Records may come from anyone: everything in them is shown as text.
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = (folder / "page.js").read_text(encoding="utf-8")
    environment.filters.update(plain=plain, number=_number)
    return environment.get_template("page.html").render(
        title=title,
        version=__version__,
        style=Markup((folder / "style.css").read_text(encoding="utf-8")),
        script=Markup(script),
        # The page allows this script and no other, whatever a record contains.
        script_digest=f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}",
        sections=sections_of(groups),
        figures=figures,
        runs=sum(len(group.records) for group in groups),
        markup=Markup,
    )


def _found_figures(folders: Sequence[Path]) -> Iterator[Figure]:
    """Every figures/*.svg below some folders, with its own title."""
    inside = {path.resolve(): path for folder in folders if folder.is_dir() for path in folder.rglob("figures/*.svg")}
    for number, path in enumerate(sorted(inside.values()), start=1):
        try:
            drawing = embed(path.read_bytes(), f"p{number}-")
        except BadData as error:
            raise BadData(f"{path}: {error}") from error
        yield Figure(drawing._replace(title=drawing.title or path.stem.replace("_", " ")), "")


def _number(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
