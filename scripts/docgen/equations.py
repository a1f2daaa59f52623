"""LaTeX equations as SVG drawings, so that the site needs no script and no network to show them."""

from __future__ import annotations

import html
import re
from functools import cache

import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser
from matplotlib.path import Path as Outline
from matplotlib.textpath import TextPath

from docgen.errors import DocsError

#: LaTeX commands that have another name in matplotlib's subset.
_OTHER_NAMES = {
    r"\lVert": r"\Vert",
    r"\rVert": r"\Vert",
    r"\lvert": r"\vert",
    r"\rvert": r"\vert",
    r"\lbrace": r"\{",
    r"\rbrace": r"\}",
    r"\bmod": r"\;\mathrm{mod}\;",
    r"\ge": r"\geq",
    r"\le": r"\leq",
    r"\gt": ">",
    r"\lt": "<",
    r"\dots": r"\ldots",
}
_NAME = re.compile(r"\\[a-zA-Z]+")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
_FONT = FontProperties(math_fontfamily="stix", size=100)
_COMMANDS = {Outline.MOVETO: "M", Outline.LINETO: "L", Outline.CURVE3: "Q", Outline.CURVE4: "C", Outline.CLOSEPOLY: "Z"}


def draw_equations(page: str) -> str:
    """Replace the equations of a page, as marked by pymdownx.arithmatex, with drawings.

    Args:
        page: The HTML of the page.
    """
    return _FORMULA.sub(lambda found: _drawing(html.unescape(found[2]).strip(), display=found[1] == "div"), page)


@cache
def _drawing(latex: str, *, display: bool) -> str:
    names = _OTHER_NAMES | ({r"\frac": r"\dfrac"} if display else {})
    text = "$" + " ".join(_NAME.sub(lambda name: names.get(name[0], name[0]), latex).split()) + "$"
    try:
        outline = TextPath((0, 0), text, prop=_FONT)
        width, height, depth, *_ = MathTextParser("path").parse(text, 72, _FONT)
    except ValueError as error:
        raise DocsError(f"matplotlib cannot draw the equation {latex!r}: {error}") from error
    # Sizes are in hundredths of an em; y grows downwards in SVG.
    box = f"0 {-height:.0f} {width:.0f} {height + depth:.0f}"
    size = f"width:{width / 100:.3f}em;height:{(height + depth) / 100:.3f}em;vertical-align:{-depth / 100:.3f}em"
    svg = (
        f'<svg class="math" role="img" aria-label="{html.escape(latex)}" viewBox="{box}" style="{size}">'
        f'<path d="{_path_data(outline)}"/></svg>'
    )
    return f'<div class="math-display">{svg}</div>' if display else svg


def _path_data(outline: Outline) -> str:
    parts = []
    for points, code in outline.iter_segments():
        flipped = np.asarray(points).reshape(-1, 2) * (1, -1)
        numbers = "" if code == Outline.CLOSEPOLY else " ".join(f"{x:.1f} {y:.1f}" for x, y in flipped)
        parts.append(_COMMANDS[Outline.code_type(code)] + numbers)
    return "".join(parts)
