"""Streams of the user's own: what evaluate converts, and what it refuses by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import ctta
from ctta import errors
from ctta.bench import evaluate
from ctta.bench.jobs import execute
from ctta.bench.prequential import scored
from ctta.streams import Batch, Domain, Images, continual, corrupted
from jobs import make_job

CLASSES = 10


def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(8), nn.Linear(8, CLASSES)),
        )


def images(count: int) -> tuple[Tensor, Tensor]:
    """Grey levels, so that uint8 and float images are the same ones."""
    generator = torch.Generator().manual_seed(count)
    return torch.randint(256, (count, 3, 8, 8), generator=generator).to(torch.uint8), torch.arange(count) % CLASSES


def of_loader(x: Tensor, y: Tensor) -> Any:
    return DataLoader(TensorDataset(x.float() / 255, y), batch_size=4)


def of_pairs(x: Tensor, y: Tensor) -> Any:
    return zip((x.float() / 255).split(4), y.split(4), strict=True)


def of_bytes(x: Tensor, y: Tensor) -> Any:
    return list(zip(x.split(4), y.split(4), strict=True))


def of_numpy(x: Tensor, y: Tensor) -> Any:
    return [(part.numpy(), labels.numpy()) for part, labels in of_bytes(x, y)]


def of_channels_last(x: Tensor, y: Tensor) -> Any:
    return [(part.permute(0, 2, 3, 1).numpy(), labels.tolist()) for part, labels in of_bytes(x, y)]


def of_lists(x: Tensor, y: Tensor) -> Any:
    return [[list(part), tuple(labels.tolist())] for part, labels in of_bytes(x, y)]


def of_mappings(x: Tensor, y: Tensor) -> Any:
    return [{"x": part, "y": labels.to(torch.uint8), "id": 3} for part, labels in of_bytes(x, y)]


def of_odd_arrays(x: Tensor, y: Tensor) -> Any:
    """Read-only, with a negative stride, and with labels in the other byte order."""
    pairs = []
    for part, labels in of_bytes(x, y):
        array = part.flip(3).numpy()[:, :, :, ::-1]
        array.flags.writeable = False
        pairs.append((array, labels.numpy().astype(">i4")))
    return pairs


@pytest.mark.parametrize(
    "form", [of_loader, of_pairs, of_bytes, of_numpy, of_channels_last, of_lists, of_mappings, of_odd_arrays]
)
def test_every_form_of_a_stream_gives_the_numbers_of_the_plain_loop(form: Callable[[Tensor, Tensor], Any]) -> None:
    x, y = images(16)
    adapter = ctta.Tent(model(), lr=0.1)
    wrong = sum(int((adapter((part.float() / 255)).argmax(1) != labels).sum()) for part, labels in of_bytes(x, y))
    report = evaluate(ctta.Tent(model(), lr=0.1), form(x, y))
    assert report.errors == {"stream": 100 * wrong / 16}
    assert [step["index"] for step in report.steps] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("stream", "error", "words"),
    [
        ([], errors.EmptyStream, "no batches"),
        (iter(()), errors.EmptyStream, "generator"),
        ("fog", errors.ParameterError, "Got str"),
        (3, errors.ParameterError, "Got int"),
        (None, errors.ParameterError, "Got NoneType"),
        (torch.zeros(4, 3, 8, 8), errors.ParameterError, "Got Tensor"),
        ([torch.zeros(4, 3, 8, 8)], errors.ParameterError, "pair"),
        ([(torch.zeros(4, 3, 8, 8), torch.arange(4), 3)], errors.ParameterError, "tuple of 3"),
        ([Domain("a", 0, Images(*images(4)))], errors.ParameterError, "Got Domain"),
        ([(torch.zeros(3, 8, 8), 1)], errors.ImageShape, "unsqueeze"),
        ([(torch.zeros(4, 3, 8, 8), 1)], errors.LabelError, "4 images need 4 labels"),
        ([([torch.zeros(3, 8, 8), torch.zeros(3, 9, 8)], [0, 1])], errors.ImageShape, "one size"),
        ([([np.zeros((8, 8, 3)), np.zeros((9, 8, 3))], [0, 1])], errors.ImageShape, "one size"),
        ([([], [])], errors.ImageShape, "empty"),
        ([(torch.zeros(0, 3, 8, 8), torch.zeros(0))], errors.ImageShape, "non-empty"),
        ([(np.zeros((2, 3, 8, 8), "O"), [0, 1])], errors.ImageDtype, "object"),
        ([(np.zeros((2, 3, 8, 8), "i8"), [0, 1])], errors.ImageDtype, "int64"),
        ([("ab", [0, 1])], errors.ImageDtype, "got str"),
        ([(torch.full((2, 3, 8, 8), 99.0), [0, 1])], errors.ImageRange, "Divide"),
        ([(torch.zeros(2, 3, 8, 8), torch.eye(2, CLASSES))], errors.LabelError, "argmax"),
        ([(torch.zeros(2, 3, 8, 8), torch.zeros(2, 1, dtype=torch.long))], errors.LabelError, r"squeeze\(1\)"),
        ([(torch.zeros(2, 3, 8, 8), torch.zeros(2))], errors.LabelError, "float32"),
        ([(torch.zeros(2, 3, 8, 8), torch.zeros(2, dtype=torch.bool))], errors.LabelError, "bool"),
        ([(torch.zeros(2, 3, 8, 8), ["cat", "dog"])], errors.LabelError, "numbers"),
        ([(torch.zeros(2, 3, 8, 8), "01")], errors.LabelError, "got str"),
        ([(torch.zeros(2, 3, 8, 8), None)], errors.LabelError, "NoneType"),
        ([(torch.zeros(2, 3, 8, 8), [[0], [1, 2]])], errors.LabelError, "one for each image"),
        ([(torch.zeros(2, 3, 8, 8), [-1, 2])], errors.LabelError, "from 0 on; got -1"),
        ([(torch.zeros(2, 3, 8, 8), [1, 10])], errors.LabelError, r"in 0\.\.9 .* got 1\.\.10.* y - 1"),
    ],
)
def test_what_is_not_a_stream_is_refused_by_name(stream: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        evaluate(ctta.Tent(model()), stream)


def test_labels_that_count_from_one_are_refused_before_anything_is_learnt() -> None:
    x, y = images(40)
    adapter = ctta.Tent(model())
    stream = continual([Domain("mine", 0, Images(x, y + 1))], batch_size=4, seed=None)
    with pytest.raises(errors.LabelError, match="y - 1"):
        evaluate(adapter, stream)
    assert adapter.steps == 0


def test_labels_are_checked_against_the_logits_of_a_model_without_a_head() -> None:
    class NoHead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, CLASSES, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x).mean((2, 3))

    with pytest.raises(errors.LabelError, match="y - 1"):
        evaluate(ctta.Source(NoHead()), [(torch.zeros(2, 3, 8, 8), [1, 10])])


def test_a_last_batch_of_one_image_is_scored_and_not_learnt_from() -> None:
    x, y = images(9)
    adapter, twin = ctta.Tent(model(), lr=0.1), ctta.Tent(model(), lr=0.1)
    report = evaluate(adapter, of_loader(x, y))
    evaluate(twin, of_loader(x[:8], y[:8]))
    assert (report.images, len(report.steps), report.not_learnt) == (9, 3, 1)
    assert report.steps[-1]["too_small"] == 1 and "too_small" not in report.steps[0]
    assert adapter.steps == 2
    assert all(torch.equal(a, b) for a, b in zip(adapter.parameters(), twin.parameters(), strict=True))
    # The last batch norm sees one value per channel: it must use the source statistics, the first one the pixels.
    source = model().eval()
    own = nn.Sequential(*list(source)[:2]).train()
    for moved, norm in zip(list(twin.student.model), list(source), strict=True):
        norm.load_state_dict(moved.state_dict(), strict=False)
    with torch.no_grad():
        logits = nn.Sequential(*list(source)[2:])(own(x[8:].float() / 255))
    assert report.steps[-1]["wrong"] == int(logits.argmax(1) != y[8:])
    torch.testing.assert_close(twin.predict(x[8:].float() / 255, allow_small=True), logits)


def test_the_leftover_of_every_domain_is_scored_also_without_learning() -> None:
    domains = [Domain(name, 0, Images(*images(5))) for name in ("first", "second")]
    for learn, unlearnt in ((True, 2), (False, 0)):
        report = evaluate(ctta.BN(model()), continual(domains, batch_size=4), learn=learn)
        assert (report.images, report.not_learnt) == (10, unlearnt)


def test_a_stream_of_single_images_is_still_refused_without_a_window() -> None:
    x, y = images(4)
    pairs = [(x[i : i + 1], y[i : i + 1]) for i in range(4)]
    with pytest.raises(errors.BatchTooSmall, match="window"):
        evaluate(ctta.Tent(model()), pairs)
    assert evaluate(ctta.Tent(model(), window=2), pairs).images == 4


def test_a_plain_model_is_refused_by_name() -> None:
    with pytest.raises(errors.ParameterError, match=r"ctta\.Source"):
        evaluate(model(), [])  # type: ignore[arg-type]


def test_batches_with_numpy_arrays_are_converted() -> None:
    x, y = images(4)
    batch = Batch(x.numpy(), y.numpy(), "mine", 2, 7)  # type: ignore[arg-type]
    report = evaluate(ctta.Source(model()), [batch])
    assert report.steps[0]["index"] == 7 and list(report.errors) == ["mine"]


def test_images_take_arrays_and_lists() -> None:
    x, y = images(4)
    for form in (x.numpy(), x.permute(0, 2, 3, 1), list(x), [image.permute(1, 2, 0).numpy() for image in x]):
        found = Images(form, y.tolist())
        assert torch.equal(found.x, x) and torch.equal(found.y, y) and found.y.dtype == torch.int64


def test_one_name_stands_for_a_list_of_one() -> None:
    found = Images(torch.zeros(2, 3, 16, 16, dtype=torch.uint8), [0, 1])
    assert [domain.name for domain in corrupted(found, "fog", 3)] == ["fog"]
    assert [batch.domain for batch in continual(corrupted(found, "fog")[0])] == ["fog"]  # type: ignore[arg-type]


def test_a_run_resumed_at_its_leftover_scores_it_as_the_whole_run_does() -> None:
    stream = continual([Domain("mine", 0, Images(*images(5)))], batch_size=4)
    whole = ctta.Tent(model(), lr=0.1)
    *_, (_, expected) = scored(whole, stream)
    resumed = ctta.Tent(model(), lr=0.1)
    resumed.step(next(iter(stream)).x)
    ((batch, log),) = scored(resumed, stream.starting_at(1))
    assert len(batch) == 1
    assert {k: v for k, v in log.items() if k != "seconds"} == {k: v for k, v in expected.items() if k != "seconds"}
    assert list(scored(resumed, stream.starting_at(2))) == []


def test_a_run_with_a_leftover_of_one_image_ends_with_a_record(tmp_path: Path) -> None:
    job = make_job("tent", "digits", "digits_resnet8", corruptions=("brightness",), images=5, batch_size=4)
    record = execute(job, tmp_path)
    assert record.complete and record.counts["brightness"].images == 5
