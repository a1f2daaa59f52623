"""Draw the pictures of the README from the bundled digits: docs/story.svg and docs/demo.svg.

python scripts/pictures.py              runs what `ctta demo` runs, or reuses the runs in out/runs
python scripts/pictures.py --out DIR    the same with the runs in DIR/runs
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from PIL import Image

from ctta._system.files import write_atomically
from ctta.bench.demo import prepare_demo, run_demo
from ctta.bench.folder import RunFolder
from ctta.cli.demo import DEFAULT
from ctta.plots.domains import plot_domain_errors
from ctta.plots.story import Course, draw_story
from ctta.plots.style import METHOD_STYLES, row_styles
from ctta.report.groups import read_groups
from ctta.streams.stream import Stream

DOCS = Path(__file__).resolve().parent.parent / "docs"
#: Positions of the images that the story shows of every domain.
SHOWN = (0, 17)


def main() -> None:
    """Draw both pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("out"), help="output folder of ctta demo")
    folder = parser.parse_args().out / "runs"
    stream, entries = prepare_demo(DEFAULT.split(","), images=450, device="cpu")
    records = run_demo(entries, stream, folder)
    courses = [
        Course(name, RunFolder(folder / record.address).read_steps(record.counts), METHOD_STYLES[method])
        for method, name in (("source", "source model"), ("trio", "the same model, adapting with Trio"))
        for record in records
        if record.spec.method == method
    ]
    story = draw_story(courses, samples(stream)).svg("Fifteen corruptions, one after the other: error along the stream")
    write_atomically(DOCS / "story.svg", story)
    (group,) = read_groups([folder / record.address for record in records])
    write_atomically(
        DOCS / "demo.svg", plot_domain_errors(group.rows, row_styles(group.rows), in_order=True, width=7.0).svg()
    )


def samples(stream: Stream) -> list[list[bytes]]:
    """A few images of every domain as PNG files."""
    found = []
    for segment in stream.segments:
        x = segment.images.take(segment.order[list(SHOWN)]).floats()
        pixels = (255 * x).round().byte().permute(0, 2, 3, 1).numpy()
        found.append([_png(Image.fromarray(image)) for image in pixels])
    return found


def _png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, format="PNG", optimize=True)
    return file.getvalue()


if __name__ == "__main__":
    main()
