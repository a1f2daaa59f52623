"""Embed SVG files in a page: only elements and attributes known to be harmless are copied."""

from __future__ import annotations

import re
from typing import NamedTuple
from xml.etree import ElementTree

from ctta.errors import BadData

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
# Nothing that executes, loads, links or leaves the drawing: no script, style, a, foreignObject, animate.
_ELEMENTS = re.compile(
    "svg|g|defs|symbol|use|path|rect|circle|ellipse|line|polyline|polygon|text|tspan|title|desc|image|clipPath|mask|"
    "pattern|marker|linearGradient|radialGradient|stop"
)
_ATTRIBUTES = re.compile(
    "d|points|transform|viewBox|preserveAspectRatio|[cfr]?[xy]|[xy][12]|r|d[xy]|width|height|style|opacity|offset|"
    "fill(-opacity|-rule)?|stroke(-width|-opacity|-linecap|-linejoin|-dasharray|-dashoffset|-miterlimit)?|"
    "font-(size|family|style|weight)|text-anchor|dominant-baseline|stop-(color|opacity)|spreadMethod|"
    "clip-(path|rule)|clipPathUnits|mask(Units)?|gradient(Units|Transform)|pattern(Units|ContentUnits|Transform)|"
    "marker(-start|-mid|-end|Width|Height|Units)|ref[XY]|orient"
)
_REFERENCE = re.compile(r"url\(\s*['\"]?#([^'\")]*)['\"]?\s*\)")
_PICTURE = re.compile(r"data:image/(png|jpeg);base64,[A-Za-z0-9+/=\s]*")


class Drawing(NamedTuple):
    """A drawing as markup for a page, with its title and its original width in points."""

    title: str
    markup: str
    width: float


def embed(data: bytes, prefix: str) -> Drawing:
    """Convert an SVG file to markup that can be part of a page.

    Args:
        data: The SVG file.
        prefix: Put before every id, so that the ids of several drawings on a page differ.

    Raises:
        BadData: The file is not an SVG file, or its elements are nested too deeply.
    """
    try:
        found = ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError) as error:
        raise BadData(f"This is not an SVG file: {error}.") from error
    if found.tag != f"{_SVG}svg":
        raise BadData(f"This is not an SVG file: it begins with <{found.tag}>.")
    try:
        return _drawing(found, prefix)
    except RecursionError as error:
        raise BadData(
            "The elements of an SVG file may be nested some hundred levels deep; this one has more levels. Save it "
            "with fewer groups, or move it out of the folder."
        ) from error


def _drawing(root: ElementTree.Element, prefix: str) -> Drawing:
    title = (root.findtext(f"{_SVG}title") or "").strip()
    drawing = _copy(root, prefix, _references(root))
    width, height = (_points(drawing.get(name, "")) for name in ("width", "height"))
    if "viewBox" not in drawing.attrib:
        drawing.set("viewBox", f"0 0 {width:g} {height:g}")
    # The page decides how large the drawing is shown.
    for name in ("width", "height", "style", "id"):
        drawing.attrib.pop(name, None)
    drawing.set("role", "img")
    drawing.set("aria-label", title)
    return Drawing(title, ElementTree.tostring(drawing, encoding="unicode"), width)


def _copy(element: ElementTree.Element, prefix: str, wanted: set[str]) -> ElementTree.Element:
    """Copy an element with its harmless attributes and children, without ids that nothing refers to."""
    name = element.tag.removeprefix(_SVG)
    copy = ElementTree.Element(name)
    for key, value in element.attrib.items():
        if key in (_HREF, "href"):
            if value.startswith("#"):
                copy.set("href", f"#{prefix}{value[1:]}")
            elif name == "image" and _PICTURE.fullmatch(value):
                copy.set("href", value)
        elif key == "id":
            if value in wanted:
                copy.set("id", prefix + value)
        elif _ATTRIBUTES.fullmatch(key) and _harmless(value):
            copy.set(key, " ".join(_REFERENCE.sub(rf"url(#{prefix}\1)", value).split()))
    has_text = name in ("text", "tspan", "title", "desc")
    copy.text = element.text if has_text else None
    for child in element:
        if child.tag.startswith(_SVG) and _ELEMENTS.fullmatch(child.tag.removeprefix(_SVG)):
            copy.append(_copy(child, prefix, wanted))
            copy[-1].tail = child.tail if has_text else None
    return copy


def _references(root: ElementTree.Element) -> set[str]:
    """The ids that are referred to within the drawing."""
    values = [value for element in root.iter() for value in element.attrib.values()]
    pointed = {value[1:] for value in values if value.startswith("#")}
    return pointed.union(*(_REFERENCE.findall(value) for value in values))


def _harmless(value: str) -> bool:
    rest = _REFERENCE.sub("", value).lower()
    return not any(part in rest for part in ("url(", "image(", "image-set(", "src(", "@", "\\", "<"))


def _points(length: str) -> float:
    """A length in points; 100 if it has another unit."""
    found = re.match(r"\d+(\.\d+)?(?=(pt|px)?$)", length)
    return float(found[0]) if found else 100.0
