"""Foreign drawings are embedded in a page without their scripts, links and ids."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from ctta.errors import BadData
from ctta.plots.style import svg
from ctta.report.embed import embed

OPEN = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9">'


def embedded(inside: str) -> str:
    return embed(f"{OPEN}{inside}</svg>".encode(), "a-").markup


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        "<style>* { display: none }</style>",
        '<a href="javascript:alert(1)"><text>x</text></a>',
        '<foreignObject><p xmlns="http://www.w3.org/1999/xhtml">x</p></foreignObject>',
        '<animate attributeName="href" to="javascript:alert(1)"/>',
        '<script xmlns="http://www.w3.org/1999/xhtml">alert(1)</script>',
    ],
)
def test_an_element_that_acts_is_dropped_with_all_it_holds(hostile: str) -> None:
    kept = ElementTree.fromstring(embedded(f"<g>{hostile}<rect/></g>"))
    assert [element.tag for element in kept.iter()] == ["svg", "g", "rect"]


@pytest.mark.parametrize(
    "hostile",
    [
        'onclick="alert(1)"',
        'onload="alert(1)"',
        'class="scroll"',
        'href="https://example.org/x.svg#y"',
        'xlink:href="//example.org/x.png"',
        'href="data:image/svg+xml;base64,AAAA"',
        'fill="url(https://example.org/x)"',
        'style="background: url( //example.org/x )"',
        r'style="fill: \75rl(//example.org)"',
        'style="fill: image-set(&quot;//example.org/x&quot; 1x)"',
    ],
)
def test_an_attribute_that_acts_or_loads_is_dropped(hostile: str) -> None:
    (image,) = ElementTree.fromstring(embedded(f'<image width="3" {hostile}/>'))
    assert image.attrib == {"width": "3"}


def test_a_picture_inside_the_drawing_stays() -> None:
    data = "data:image/png;base64,iVBORw0KGgo="
    (image,) = ElementTree.fromstring(embedded(f'<image xlink:href="{data}"/>'))
    assert image.attrib == {"href": data}


def test_ids_get_the_prefix_where_they_are_and_where_they_are_meant() -> None:
    drawing = embedded(
        '<defs><path id="m" d="M 0 0"/><clipPath id="c"><rect/></clipPath></defs><use xlink:href="#m"/>'
        '<g id="unused" clip-path="url(#c)" style="fill: url(#h); stroke: #fff"/>'
    )
    assert re.findall(r'id="(\S+)"', drawing) == ["a-m", "a-c"]
    assert 'href="#a-m"' in drawing and 'clip-path="url(#a-c)"' in drawing
    assert 'style="fill: url(#a-h); stroke: #fff"' in drawing


def test_words_stay_words() -> None:
    drawing = embed(f"{OPEN}<title>a &lt; b</title><text>1 &amp; <tspan>2</tspan> 3</text></svg>".encode(), "a-")
    title, text = ElementTree.fromstring(drawing.markup)
    assert drawing.title == title.text == "a < b"
    assert "".join(text.itertext()) == "1 & 2 3"


def test_a_figure_keeps_every_line_and_word_and_has_a_name() -> None:
    figure = Figure()
    panel = figure.subplots()
    panel.plot([1, 2, 3], [3, 1, 2], marker="o")
    panel.bar([1], [2], hatch="//")
    panel.set_xlabel("step <1>")
    data = svg(figure, "A & B")
    whole, drawing = ElementTree.fromstring(data), embed(data, "a-")
    part = ElementTree.fromstring(drawing.markup)
    for tag in ("path", "use", "text", "clipPath"):
        assert len(part.findall(f".//{tag}")) == len(whole.findall(f".//{{http://www.w3.org/2000/svg}}{tag}")) > 0
    assert part.get("viewBox") == whole.get("viewBox") and part.get("width") is None
    assert part.get("role") == "img" and part.get("aria-label") == drawing.title == "A & B"
    assert "<style" not in drawing.markup and "http" not in drawing.markup


def test_a_drawing_that_says_only_its_size_can_be_scaled() -> None:
    bare = b'<svg xmlns="http://www.w3.org/2000/svg" width="40pt" height="30pt"/>'
    drawing = embed(bare, "a-")
    assert ElementTree.fromstring(drawing.markup).get("viewBox") == "0 0 40 30" and drawing.width == 40


@pytest.mark.parametrize("data", [b"", b"<svg", b"<html/>", b"\x89PNG\r\n", b'<svg xmlns="http://other"/>'])
def test_what_is_no_drawing_is_named(data: bytes) -> None:
    with pytest.raises(BadData, match="not an SVG file"):
        embed(data, "a-")


def test_a_drawing_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(BadData, match="nested some hundred levels deep; this one has more"):
        embedded("<g>" * 3000 + "</g>" * 3000)


def test_a_drawing_that_unfolds_without_end_is_refused() -> None:
    names = "abcdefghijklmnop"
    entities = "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in pairwise(names))
    bomb = f'<!DOCTYPE svg [<!ENTITY a "ha">{entities}]>{OPEN}<text>&p;</text></svg>'
    with pytest.raises(BadData, match="not an SVG file"):
        embed(bomb.encode(), "a-")
