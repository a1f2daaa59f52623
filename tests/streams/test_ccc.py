"""CCC: paths, measured accuracies and the stream, against naive computations."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ctta.classifier import Classifier
from ctta.corruptions import CORRUPTIONS, corrupt_at
from ctta.errors import HeadNotFound, ParameterError
from ctta.streams import Images, SourceAccuracy, ccc
from ctta.streams.ccc import usual_corruptions
from ctta.streams.ccc_path import transition

Grid = Sequence[Sequence[float]]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CTTA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def naive_path(grid: Grid, target: float) -> list[tuple[int, int]]:
    """Try every path, without a table."""

    def way_from(a: int, b: int) -> list[tuple[int, int]]:
        if a == 0:
            return [(a, b)]
        ways = [[(a, b), *way_from(a, b + 1)]] if b + 1 < len(grid) else []
        ways.append([(a, b), *way_from(a - 1, b)])
        return min(ways, key=distance)

    def distance(way: list[tuple[int, int]]) -> float:
        return abs(sum(grid[a][b] for a, b in way) / len(way) - target)

    return min((way_from(a, 0) for a in range(1, len(grid))), key=distance)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("target", [0.0, 25.0, 60.0])
def test_a_transition_is_the_best_monotone_path(seed: int, target: float) -> None:
    draw = random.Random(seed)
    grid = [[float(draw.randrange(101)) for _ in range(6)] for _ in range(6)]
    path = transition(grid, target)
    assert path == naive_path(grid, target)
    assert path[0][1] == 0 and path[-1][0] == 0
    assert all(step in ((-1, 0), (0, 1)) for step in ((c - a, d - b) for (a, b), (c, d) in itertools.pairwise(path)))


def test_a_transition_holds_the_accuracy_near_the_target() -> None:
    grid = [[max(10.0, 95 - 4 * a - 3 * b) for b in range(21)] for a in range(21)]
    for target in (70.0, 40.0):
        values = [grid[a][b] for a, b in transition(grid, target)]
        assert sum(values) / len(values) == pytest.approx(target, abs=1)


class Dark(nn.Module):
    """A head that tells dark images from bright ones, so that corruptions change its accuracy."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(1, 2)
        with torch.no_grad():
            self.fc.weight.copy_(torch.tensor([[-1.0], [1.0]]))
            self.fc.bias.copy_(torch.tensor([0.5, -0.5]))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.mean((2, 3))[:, :1])  # type: ignore[no-any-return]


def pictures(count: int = 12) -> Images:
    """Grey levels around 40, 52, 64, ...: the more a corruption brightens, the more of them pass for bright."""
    generator = torch.Generator().manual_seed(1)
    levels = 40 + 12 * torch.arange(count) % 160
    x = levels[:, None, None, None] + torch.randint(-20, 21, (count, 3, 16, 16), generator=generator)
    return Images(x.to(torch.uint8), (levels > 127).long())


@pytest.fixture
def source() -> Classifier:
    return Classifier(Dark())


def accuracy(source: Classifier, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return 100 * float((source.eval()(x.float() / 255).argmax(1) == y).double().mean())


def test_measured_accuracies_are_those_of_the_corrupted_images(source: Classifier) -> None:
    images = pictures()
    grid = SourceAccuracy(source, images, count=12, step=2.5).grid("brightness", "snow", 2)
    assert len({value for line in grid for value in line}) > 4
    for a, first in enumerate((0, 2.5, 5)):
        for b, second in enumerate((0, 2.5, 5)):
            order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
            x = corrupt_at(corrupt_at(images.x[order], "brightness", first), "snow", second)
            assert grid[a][b] == pytest.approx(accuracy(source, x, images.y[order]))


def test_severities_between_the_measured_ones_are_interpolated(source: Classifier) -> None:
    measured = SourceAccuracy(source, pictures(), count=12, step=5)
    corners, fine = measured.grid("brightness", "snow", 1), measured.grid("brightness", "snow", 4)
    for a in range(5):
        for b in range(5):
            s, t = a / 4, b / 4
            expected = (1 - s) * ((1 - t) * corners[0][0] + t * corners[0][1]) + s * (
                (1 - t) * corners[1][0] + t * corners[1][1]
            )
            assert fine[a][b] == pytest.approx(expected)


def test_an_additive_table_subtracts_both_losses_down_to_chance(source: Classifier) -> None:
    whole = SourceAccuracy(source, pictures(), count=12, step=2.5)
    added = SourceAccuracy(source, pictures(), count=12, step=2.5, fill="additive").grid("brightness", "fog", 2)
    exact = whole.grid("brightness", "fog", 2)
    for a in range(3):
        for b in range(3):
            alone = exact[a][0] + exact[0][b] - exact[0][0]
            assert added[a][b] == pytest.approx(max(50.0, alone) if a and b else alone)


def test_what_was_measured_is_found_in_the_cache_and_damage_is_measured_again(
    source: Classifier, own_cache: Path
) -> None:
    seen: list[str] = []

    def grid(**others: object) -> Grid:
        count = len(seen)
        measured = SourceAccuracy(source, pictures(), step=5, progress=lambda name, done, total: seen.append(name))
        found = measured.grid("fog", "contrast", 5)
        seen[count:] = sorted(set(seen[count:]))
        return found

    first = grid()
    assert seen == [f"accuracy under {what}" for what in ("clean", "contrast", "fog", "fog contrast")]
    assert grid() == first and len(seen) == 4
    for entry in own_cache.rglob("*"):
        if entry.is_file():
            entry.write_bytes(b"damaged")
    assert grid() == first and len(seen) == 8
    with torch.no_grad():
        source.eval().model.fc.bias += 0.01  # type: ignore[union-attr, operator]
    grid()
    assert len(seen) == 12


def test_progress_counts_images(source: Classifier) -> None:
    seen: list[tuple[str, int, int]] = []
    SourceAccuracy(source, pictures(), count=5, step=2.5, progress=lambda *now: seen.append(now)).grid("fog", "snow", 2)
    assert [now for now in seen if now[0] == "accuracy under fog snow"] == [
        ("accuracy under fog snow", done, 20) for done in (0, 5, 10, 15, 20)
    ]


def made_up(first: str, second: str, levels: int) -> Grid:
    return [[90 - 60 * a / levels - 60 * b / levels - len(first) for b in range(levels + 1)] for a in range(levels + 1)]


def test_the_stream_is_a_chain_of_transitions_with_images_drawn_anew() -> None:
    images, names = pictures(), ("fog", "contrast", "brightness")
    stream = ccc(images, made_up, names, target=40, speed=5, step=1.25, length=83, batch_size=3, seed=9)
    generator = torch.Generator().manual_seed(9)

    def other(than: str) -> str:
        left = [name for name in names if name != than]
        return left[int(torch.randint(len(left), (1,), generator=generator))]

    shown, second, number = 0, other(""), 0
    batches = iter(stream)
    while shown < 83:
        first, second = second, other(second)
        for a, b in naive_path(made_up(first, second, 4), 40):
            if shown == 83:
                break
            count = min(5, 83 - shown)
            order = torch.randperm(12, generator=generator)[:count]
            x = corrupt_at(images.x[order], first, 1.25 * a, seed=9 * 1_000_003 + number)
            x = corrupt_at(x, second, 1.25 * b, seed=9 * 1_000_003 + number)
            for part in torch.arange(count).split(3):  # type: ignore[no-untyped-call]
                batch = next(batches)
                assert torch.equal(batch.x, x[part].float() / 255) and torch.equal(batch.y, images.y[order][part])
                assert (batch.domain, batch.severity) == ("ccc", 1.25 * (a + b))
            shown, number = shown + count, number + 1
    assert next(batches, None) is None


def test_no_image_is_drawn_again_at_a_point_before_all_were() -> None:
    stream = ccc(pictures(), made_up, ("fog", "contrast"), speed=30, step=5, length=30)
    counts = stream.segments[0].order.bincount(minlength=12)
    assert counts.min() >= 2 and counts.max() <= 3


def test_the_usual_corruptions_are_those_of_the_three_levels() -> None:
    assert set(CORRUPTIONS) - set(usual_corruptions(40)) == {"brightness"}
    assert set(CORRUPTIONS) - set(usual_corruptions(20)) == {"brightness", "jpeg_compression"}
    assert set(usual_corruptions(0)) == {"gaussian_noise", "shot_noise", "impulse_noise", "contrast"}


@pytest.mark.parametrize(
    "wrong",
    [{"step": 0.3}, {"step": 0}, {"speed": 0}, {"length": 0}, {"target": 101}, {"corruptions": "fog"}, {"seed": -1}],
)
def test_wrong_arguments_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        ccc(pictures(), made_up, **wrong)  # type: ignore[arg-type]


def test_wrong_ways_to_measure_are_refused(source: Classifier) -> None:
    for wrong in ({"step": 0.3}, {"count": 0}, {"fill": "cubic"}):
        with pytest.raises(ParameterError):
            SourceAccuracy(source, pictures(), **wrong)  # type: ignore[arg-type]
    assert json.dumps(SourceAccuracy(source, pictures(), step=5).grid("fog", "snow", 1))


class Plain(nn.Module):
    """Tells dark images from bright ones with parameters that are not a head, or without any."""

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.scale = torch.tensor(1.0) if dtype is None else nn.Parameter(torch.tensor(1.0, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(self.scale, nn.Parameter):
            assert x.dtype == self.scale.dtype
        level = x.mean((1, 2, 3)) * self.scale
        return torch.stack([0.5 - level, level - 0.5], 1)


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.float64])
@pytest.mark.parametrize("given", [torch.uint8, torch.float16, torch.float64])
def test_a_source_without_a_head_or_parameters_is_measured_with_images_of_any_type(
    dtype: torch.dtype | None, given: torch.dtype
) -> None:
    images = pictures()
    if given != torch.uint8:
        images = Images((images.x.double() / 255).to(given), images.y)
    clean = SourceAccuracy(Classifier(Plain(dtype)), images, step=5).grid("fog", "snow", 1)[0][0]
    dark = pictures().x.double().mean((1, 2, 3)) < 127.5
    assert clean == pytest.approx(100 * float((dark == (images.y == 0)).double().mean()))


def test_an_additive_table_needs_the_number_of_classes() -> None:
    with pytest.raises(HeadNotFound):
        SourceAccuracy(Classifier(Plain()), pictures(), fill="additive")
