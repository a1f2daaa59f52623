import pytest
import torch

from ctta.corruptions import CORRUPTIONS, corrupt
from ctta.errors import BadData, ImageDtype, ImageShape, LabelError, ParameterError, UnknownStream
from ctta.protocol import StreamParts, get_protocol
from ctta.streams import (
    Domain,
    Images,
    Segment,
    Stream,
    clean,
    concatenate,
    correlated,
    corrupted,
    gradual,
    mixed,
    mixed_correlated,
    random_orders,
    recurring,
)
from ctta.streams import continual as in_order


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(3)
    return Images(torch.randint(256, (23, 3, 16, 16), generator=generator, dtype=torch.uint8), torch.arange(23) % 10)


def continual(images, *, corruptions=CORRUPTIONS, severity=5, batch_size=200, seed=0, scale=None, keep=False):
    domains = corrupted(images, corruptions, (severity,), seed=seed, scale=scale, keep=keep)
    return in_order(domains, batch_size=batch_size, seed=seed)


def same(a, b):
    return (
        torch.equal(a.x, b.x)
        and torch.equal(a.y, b.y)
        and (a.domain, a.severity, a.index) == (b.domain, b.severity, b.index)
    )


def test_domains_come_one_after_another_in_the_order_given(images):
    stream = continual(images, corruptions=("fog", "contrast"), severity=3, batch_size=10)
    assert [(b.domain, b.severity, b.index, len(b)) for b in stream] == [
        ("fog", 3, 0, 10),
        ("fog", 3, 1, 10),
        ("fog", 3, 2, 3),
        ("contrast", 3, 3, 10),
        ("contrast", 3, 4, 10),
        ("contrast", 3, 5, 3),
    ]
    assert len(stream) == 6
    assert stream.domains == ("fog", "contrast")


def test_by_default_the_fifteen_corruptions_arrive_at_severity_5(images):
    stream = continual(images)
    assert stream.domains == CORRUPTIONS
    assert {segment.severity for segment in stream.segments} == {5}


@pytest.mark.parametrize("batch_size", [1, 7, 23, 24, 1000])
def test_any_batch_size_shows_every_image_once_per_domain(images, batch_size):
    stream = continual(images, corruptions=("contrast",), batch_size=batch_size)
    batches = list(stream)
    assert len(batches) == len(stream)
    assert torch.cat([b.y for b in batches]).sort().values.tolist() == images.y.sort().values.tolist()


def test_a_batch_holds_the_corrupted_images_as_floats(images):
    order = torch.randperm(23, generator=torch.Generator().manual_seed(5))
    first = next(iter(continual(images, corruptions=("shot_noise",), severity=2, batch_size=4, seed=5)))
    expected = corrupt(images.x[order[:4]], "shot_noise", severity=2, seed=5)
    assert torch.equal(first.x, expected.float() / 255)
    assert torch.equal(first.y, images.y[order[:4]])


def test_every_domain_shows_the_images_in_the_same_order(images):
    batches = list(continual(images, corruptions=("fog", "contrast"), batch_size=50))
    assert torch.equal(batches[0].y, batches[1].y)
    assert not torch.equal(batches[0].y, images.y)


def test_a_stream_is_the_same_when_run_again_and_another_with_another_seed(images):
    stream = continual(images, corruptions=("snow",), batch_size=5, seed=1)
    other = continual(images, corruptions=("snow",), batch_size=5, seed=2)
    assert all(same(a, b) for a, b in zip(stream, stream, strict=True))
    assert not any(same(a, b) for a, b in zip(stream, other, strict=True))


def test_a_stream_leaves_the_global_generator_alone(images):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    list(continual(images, corruptions=("gaussian_noise",)))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("step", range(7))
def test_a_stream_started_later_is_the_tail_of_the_whole(images, step):
    stream = continual(images, corruptions=("fog", "contrast"), batch_size=10)
    tail = stream.starting_at(step)
    assert len(tail) == 6 - step
    assert all(same(a, b) for a, b in zip(list(stream)[step:], tail, strict=True))


class Watched:
    """Images that record which of them are read."""

    def __init__(self, images, name, log):
        self.images, self.name, self.log = images, name, log

    @property
    def y(self):
        return self.images.y

    def __len__(self):
        return len(self.images)

    def take(self, which):
        self.log.append((self.name, len(torch.arange(len(self))[which])))
        return self.images.take(which)


def test_images_are_made_batch_by_batch_and_skipped_ones_never(images):
    log = []
    segments = [Segment(name, 0, Watched(images, name, log), torch.arange(23)) for name in "abc"]
    batches = iter(Stream(segments, batch_size=20).starting_at(3))
    assert log == []
    next(batches)
    assert log == [("b", 3)]
    next(batches)
    assert log == [("b", 3), ("c", 20)]


def test_a_kept_domain_is_made_once(images, monkeypatch):
    calls = []

    def counted(x, name, **options):
        calls.append(name)
        return x

    monkeypatch.setattr("ctta.datasets.corrupted.corrupt", counted)
    stream = continual(images, corruptions=("fog", "snow"), keep=True)
    list(stream), list(stream)
    assert calls == ["fog", "snow"]


def test_the_constants_can_be_those_of_another_benchmark(images):
    weak, strong = (
        next(iter(continual(images, corruptions=("gaussian_noise",), scale=scale))) for scale in ("cifar", "imagenet")
    )
    original = images.take(torch.randperm(23, generator=torch.Generator().manual_seed(0))).floats()
    assert (weak.x - original).std() < 0.5 * (strong.x - original).std()


def test_mistakes_are_found_before_the_stream_runs(images):
    with pytest.raises(UnknownStream, match="Did you mean 'fog'"):
        continual(images, corruptions=("fogg",))
    with pytest.raises(ParameterError, match="severity"):
        continual(images, severity=6)
    with pytest.raises(ParameterError, match="given once; got fog 2 times"):
        continual(images, corruptions=("fog", "snow", "fog"))
    with pytest.raises(ParameterError, match="batch_size"):
        continual(images, batch_size=0)
    with pytest.raises(ParameterError, match="15 steps cannot start at step 16"):
        continual(images).starting_at(16)


def test_images_and_classes_must_fit_each_other():
    with pytest.raises(LabelError, match="2 images need 2 labels"):
        Images(torch.zeros(2, 3, 8, 8), torch.arange(3))
    with pytest.raises(ImageShape):
        Images(torch.zeros(3, 8, 8), torch.arange(3))
    with pytest.raises(ImageDtype):
        Images(torch.zeros(2, 3, 8, 8, dtype=torch.int64), torch.arange(2))
    with pytest.raises(ParameterError, match=r"1\.\.2"):
        Images(torch.zeros(2, 3, 8, 8), torch.arange(2)).first(3)


@pytest.mark.parametrize("domains", [[], "fog", [1], None, 5, Images(torch.zeros(1, 3, 8, 8), [0])])
@pytest.mark.parametrize("protocol", [in_order, mixed, correlated, gradual, random_orders])
def test_what_is_not_a_list_of_domains_is_refused_by_name(protocol, domains):
    with pytest.raises(ParameterError, match="at least one Domain"):
        protocol(domains)


@pytest.mark.parametrize("wrong", [-1, 2**32, pytest.param(10**5000, id="huge"), "0", 1.5, True, [0]])
def test_a_seed_that_is_none_is_refused_by_name(images, wrong):
    domains = corrupted(images, "fog")
    for protocol in (in_order, mixed, correlated, random_orders):
        with pytest.raises(ParameterError, match="'seed'"):
            protocol(domains, seed=wrong)


@pytest.mark.parametrize("wrong", [None, 2.5, [["x"]], [True], b"5"])
def test_lists_of_other_things_are_refused_by_name(images, wrong):
    with pytest.raises(ParameterError, match="'severities' must be a list of whole numbers"):
        corrupted(images, "fog", wrong)
    with pytest.raises(ParameterError, match="'corruptions' must be a list of names"):
        corrupted(images, wrong)


@pytest.mark.parametrize("wrong", ["4", None, 2.5, True, -3])
def test_sizes_that_are_not_whole_numbers_are_refused_by_name(images, wrong):
    domains = corrupted(images, "fog")
    with pytest.raises(ParameterError, match="'batch_size'"):
        in_order(domains, batch_size=wrong)
    with pytest.raises(ParameterError, match="'times'"):
        recurring(in_order(domains), wrong)
    if wrong is not None:
        with pytest.raises(ParameterError, match="'images'"):
            in_order(domains, images=wrong)


def sequence(stream):
    return [(b.domain, b.severity, b.index, len(b)) for b in stream]


@pytest.fixture
def marked():
    """Three domains of ten images whose first value encodes domain and number."""

    def domain(number):
        x = torch.zeros(10, 1, 16, 16)
        x[:, 0, 0, 0] = (10 * number + torch.arange(10)) / 255
        return Domain("abc"[number], number + 1, Images(x, torch.arange(10) % 3))

    return [domain(number) for number in range(3)]


def marks(stream):
    return [int(value) for b in stream for value in (255 * b.x[:, 0, 0, 0]).round()]


def test_without_a_seed_images_keep_their_order_and_only_the_first_so_many_are_shown(marked):
    stream = in_order(marked, batch_size=4, seed=None, images=6)
    assert marks(stream) == [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25]
    assert [len(b) for b in stream] == [4, 2, 4, 2, 4, 2]


def test_random_orders_permute_the_domains_and_repeat_with_the_seed(marked):
    streams = random_orders(marked, 6, seed=1)
    assert len(streams) == 6
    assert all(sorted(stream.domains) == ["a", "b", "c"] for stream in streams)
    assert len({stream.domains for stream in streams}) > 1
    assert [s.domains for s in random_orders(marked, 6, seed=1)] == [s.domains for s in streams]
    generator = torch.Generator().manual_seed(1)
    first = tuple("abc"[i] for i in torch.randperm(3, generator=generator))
    assert streams[0].domains == first


def test_a_gradual_stream_rises_and_falls_for_each_corruption_in_turn(images):
    stream = gradual(corrupted(images, ("fog", "contrast"), range(1, 6)), batch_size=23)
    path = [1, 2, 3, 4, 5, 4, 3, 2, 1]
    expected = [("fog", s, i, 23) for i, s in enumerate(path)] + [
        ("contrast", s, 9 + i, 23) for i, s in enumerate(path)
    ]
    assert sequence(stream) == expected


def test_a_gradual_stream_needs_every_severity(images):
    with pytest.raises(ParameterError, match="severities 1 to 5 of fog; got"):
        gradual(corrupted(images, ("fog",), (1, 5)))


def test_a_mixed_stream_shows_every_image_once_in_batches_of_any_domain(marked):
    stream = mixed(marked, batch_size=8, seed=3)
    shown = marks(stream)
    within, among = (torch.randperm(n, generator=torch.Generator().manual_seed(3)).tolist() for n in (10, 30))
    assert shown == [10 * (place // 10) + within[place % 10] for place in among]
    assert all(len({mark // 10 for mark in shown[i : i + 8]}) > 1 for i in range(0, 24, 8))
    assert {b.domain for b in stream} == {"mixed"} and [len(b) for b in stream] == [8, 8, 8, 6]
    labels = [int(value) for b in stream for value in b.y]
    assert labels == [mark % 10 % 3 for mark in shown]


def test_a_correlated_stream_shows_every_image_once_with_its_classes_in_clumps():
    y = torch.arange(600) % 6
    domain = Domain("d", 5, Images(torch.zeros(600, 1, 16, 16), y))

    def changes(stream):
        labels = torch.cat([b.y for b in stream])
        assert labels.bincount().tolist() == [100] * 6
        return int((labels[1:] != labels[:-1]).sum())

    clumped, even = correlated([domain], concentration=0.01), correlated([domain], concentration=1000.0)
    shuffled = in_order([domain])
    assert changes(clumped) < changes(even) < 40 < changes(shuffled)


def test_a_correlated_stream_deals_each_class_out_by_its_dirichlet_shares():
    y = torch.arange(40) % 2
    stream = correlated([Domain("d", 5, Images(torch.zeros(40, 1, 16, 16), y))], concentration=0.5, seed=4)
    generator = torch.Generator().manual_seed(1_000_003 * 4)
    cuts = []
    for _ in range(2):
        draw = torch._standard_gamma(torch.full((2,), 0.5, dtype=torch.float64), generator)
        cuts.append(round((20 * draw[0] / draw.sum()).item()))
    expected = [0] * cuts[0] + [1] * cuts[1] + [0] * (20 - cuts[0]) + [1] * (20 - cuts[1])
    assert torch.cat([b.y for b in stream]).tolist() == expected


def test_a_recurring_stream_is_the_sequence_again_and_again(marked):
    once = in_order(marked, batch_size=10, seed=None)
    assert marks(recurring(once, 3)) == 3 * marks(once)
    assert [b.index for b in recurring(once, 3)] == list(range(9))
    with pytest.raises(ParameterError, match="at least 1"):
        recurring(once, 0)


def test_a_clean_stream_is_the_images_as_they_are(images):
    stream = clean(images, batch_size=10, seed=None)
    assert sequence(stream) == [("clean", 0, 0, 10), ("clean", 0, 1, 10), ("clean", 0, 2, 3)]
    assert torch.equal(torch.cat([b.x for b in stream]), images.floats())


@pytest.mark.parametrize("step", [0, 1, 5, 8])
def test_any_protocol_can_start_at_a_step(marked, step):
    for stream in (mixed(marked, batch_size=10), correlated(marked, batch_size=10), recurring(in_order(marked), 3)):
        tail = stream.starting_at(min(step, len(stream)))
        assert all(same(a, b) for a, b in zip(list(stream)[min(step, len(stream)) :], tail, strict=True))


def test_too_many_images_are_refused(marked):
    with pytest.raises(ParameterError, match=r"in 1\.\.10"):
        in_order(marked, images=11)


def test_severities_may_be_an_iterator(images):
    names = [(d.name, d.severity) for d in corrupted(images, ("fog", "snow"), iter((1, 2)))]
    assert names == [("fog", 1), ("fog", 2), ("snow", 1), ("snow", 2)]


def test_fewer_images_of_a_sorted_domain_are_of_all_its_classes():
    y = torch.arange(50) // 10
    stream = in_order([Domain("d", 0, Images(torch.zeros(50, 1, 16, 16), y))], images=20)
    assert len(torch.cat([b.y for b in stream]).unique()) == 5


def test_a_stream_follows_another_and_steps_are_counted_on(images):
    first, last = continual(images, corruptions=("fog",), batch_size=10), clean(images, batch_size=10)
    both = list(concatenate(first, last))
    assert [b.domain for b in both] == ["fog"] * 3 + ["clean"] * 3 and [b.index for b in both] == list(range(6))
    assert all(torch.equal(a.x, b.x) for a, b in zip(both, [*first, *last], strict=True))
    with pytest.raises(ParameterError, match=r"one batch size\. Got 10 and 7"):
        concatenate(first, clean(images, batch_size=7))


def test_a_stream_that_recurs_or_is_followed_by_another_keeps_its_device(images):
    stream = continual(images, corruptions=("fog",)).on(torch.device("meta"))
    assert recurring(stream, 2).device == torch.device("meta")
    assert concatenate(stream, clean(images)).device == torch.device("meta")


def test_domains_of_two_image_sizes_cannot_be_mixed(images):
    small = Domain("small", 0, Images(torch.zeros(23, 3, 8, 8, dtype=torch.uint8), images.y))
    stream = mixed([Domain("large", 0, images), Domain("more", 0, images), small])
    with pytest.raises(BadData, match=r"large has \(3, 16, 16\) and small \(3, 8, 8\)"):
        next(iter(stream))


@pytest.mark.parametrize("protocol", [correlated, mixed_correlated])
def test_only_the_order_of_labels_matters_to_clumps_and_not_their_size(protocol):
    def labels(last):
        y = torch.tensor([0, 3, last] * 20)
        return torch.cat([b.y for b in protocol([Domain("d", 5, Images(torch.zeros(60, 1, 16, 16), y))])])

    small, huge = labels(7), labels(2**40)
    assert huge.tolist() == [2**40 if label == 7 else label for label in small.tolist()]


@pytest.mark.parametrize("name", ["then-clean", "then-clean-resting"])
def test_a_domain_of_the_data_cannot_be_named_like_the_clean_images_that_follow(images, name):
    parts = StreamParts([Domain("clean", 0, images)], batch_size=10, clean=images)
    with pytest.raises(ParameterError, match="no domain of that name"):
        get_protocol(name).stream(parts)
