"""The order of the images in protocols with visits, sorted labels and clumps, against naive loops."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from ctta._system.digests import sha256_of
from ctta.errors import ParameterError, UserCodeError
from ctta.protocol import Protocol, StreamParts, get_protocol, order_text
from ctta.streams import Domain, Images, Stream, continual, mixed_correlated, random_visits, sorted_by_label


def domain(number: int, size: int = 10, classes: int = 3) -> Domain:
    """A domain whose images encode its number and their own in their first value."""
    x = torch.zeros(size, 1, 16, 16)
    x[:, 0, 0, 0] = (size * number + torch.arange(size)) / 255
    return Domain("abc"[number], number + 1, Images(x, torch.arange(size) % classes))


DOMAINS = [domain(number) for number in range(3)]


def marks(stream: Stream) -> list[int]:
    return [int(value) for batch in stream for value in (255 * batch.x[:, 0, 0, 0]).round()]


def shuffled(seed: int, size: int = 10) -> list[int]:
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed)).tolist()


def built(name: str, seed: int = 0, batch_size: int = 4, **options: float) -> Stream:
    return get_protocol(name).stream(StreamParts(DOMAINS, batch_size, seed, times=2, options=options))


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_cdc_draws_a_domain_that_has_batches_left_and_then_how_many_it_shows(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    left = {number: [shuffled(seed)[i : i + 4] for i in (0, 4, 8)] for number in range(3)}
    expected: list[tuple[str, list[int]]] = []
    while left:
        number = list(left)[int(torch.randint(len(left), (1,), generator=generator))]
        for _ in range(1 + int(torch.randint(len(left[number]), (1,), generator=generator))):
            expected.append(("abc"[number], [10 * number + i for i in left[number].pop(0)]))
        if not left[number]:
            del left[number]
    stream = built("cdc", seed)
    assert [(b.domain, (255 * b.x[:, 0, 0, 0]).round().int().tolist()) for b in stream] == expected
    assert sorted(marks(stream)) == list(range(30))


def test_domains_of_a_cdc_stream_come_back() -> None:
    visits = random_visits([domain(number, 40) for number in range(3)], batch_size=2, seed=1).segments
    assert len(visits) > 3 and {visit.domain for visit in visits} == set("abc")


def test_a_sorted_stream_shows_each_domain_class_by_class() -> None:
    expected = [10 * number + i for number in range(3) for label in range(3) for i in shuffled(5) if i % 3 == label]
    assert marks(sorted_by_label(DOMAINS, batch_size=7, seed=5)) == expected
    assert marks(built("wild-sorted", 5)) == expected


def naive_chunks(y: list[int], concentration: float, seed: int, least: int) -> list[int]:
    """The benchmark's way of dealing out images, in plain loops."""
    generator = torch.Generator().manual_seed(seed)
    classes = sorted(set(y))
    while True:
        chunks: list[list[list[int]]] = [[] for _ in classes]
        for label in classes:
            mine = [i for i, found in enumerate(y) if found == label]
            mine = [mine[i] for i in torch.randperm(len(mine), generator=generator).tolist()]
            alpha = torch.full((len(classes),), concentration, dtype=torch.float64)
            draws = torch._standard_gamma(alpha, generator).tolist()
            sizes = [sum(map(len, chunk)) for chunk in chunks]
            shares = [draw if size < len(y) / len(classes) else 0.0 for draw, size in zip(draws, sizes, strict=True)]
            begin, so_far = 0, 0.0
            for number, share in enumerate(shares):
                so_far += share / sum(shares)
                end = len(mine) if number == len(shares) - 1 else int(so_far * len(mine))
                chunks[number].append(mine[begin:end])
                begin = end
        if min(sum(map(len, chunk)) for chunk in chunks) >= least:
            break
    order = []
    for chunk in chunks:
        for number in torch.randperm(len(classes), generator=generator).tolist():
            order += chunk[number]
    return order


@pytest.mark.parametrize(("seed", "concentration"), [(0, 0.5), (1, 0.1), (2, 1.0)])
def test_mixed_correlated_deals_the_classes_of_all_domains_over_chunks(seed: int, concentration: float) -> None:
    domains = [domain(number, 80, 4) for number in range(3)]
    stream = mixed_correlated(domains, concentration=concentration, batch_size=50, seed=seed)
    chosen = [80 * number + i for number in range(3) for i in shuffled(seed, 80)]
    expected = [chosen[i] for i in naive_chunks([c % 80 % 4 for c in chosen], concentration, seed, least=10)]
    assert marks(stream) == expected
    assert {batch.domain for batch in stream} == {"mixed"}


def test_mixed_correlated_shows_every_image_once_with_more_clumps_the_smaller_the_concentration() -> None:
    def changes(concentration: float) -> int:
        stream = built("mixed-correlated", 3, concentration=concentration)
        assert sorted(marks(stream)) == list(range(30))
        y = torch.cat([batch.y for batch in stream])
        return int((y[1:] != y[:-1]).sum())

    assert changes(0.0) == 2
    assert changes(0.0) <= changes(0.01) < changes(100.0)


@pytest.mark.parametrize("wrong", [-0.1, float("inf"), float("nan"), "1"])
def test_a_concentration_that_is_none_is_refused(wrong: float) -> None:
    with pytest.raises(ParameterError, match="'concentration'"):
        mixed_correlated(DOMAINS, concentration=wrong)


def naive_clumps(y: list[int], concentration: float, generator: torch.Generator, most: int) -> list[int]:
    """PeTTA's way of dealing out the images of one visit, in plain loops."""
    classes = sorted(set(y))
    slots: list[list[list[int]]] = [[] for _ in range(min(len(classes), most))]
    for label in classes:
        mine = [i for i, found in enumerate(y) if found == label]
        alpha = torch.full((len(slots),), concentration, dtype=torch.float64)
        draws = torch._standard_gamma(alpha, generator).tolist()
        begin, so_far = 0, 0.0
        for number, draw in enumerate(draws):
            so_far += draw / sum(draws)
            end = len(mine) if number == len(draws) - 1 else int(so_far * len(mine))
            slots[number].append(mine[begin:end])
            begin = end
    return [i for slot in slots for c in torch.randperm(len(slot), generator=generator).tolist() for i in slot[c]]


@pytest.mark.parametrize(("classes", "slots"), [(3, 3), (110, 100)])
def test_recurring_correlated_deals_out_every_domain_anew_in_every_round(classes: int, slots: int) -> None:
    domains = [domain(number, 2 * classes, classes) for number in range(2)]
    parts = StreamParts(domains, 4, 2, times=3, options={"concentration": 0.5})
    generator = torch.Generator().manual_seed(2)
    order, expected = shuffled(2, 2 * classes), []
    for number in (0, 1) * 3:
        y = [i % classes for i in order]
        expected += [2 * classes * number + order[i] for i in naive_clumps(y, 0.5, generator, slots)]
    assert marks(get_protocol("recurring-correlated").stream(parts)) == expected
    rounds = [expected[i : i + 4 * classes] for i in range(0, len(expected), 4 * classes)]
    assert len(rounds) == 3 and rounds[0] != rounds[1] and sorted(rounds[0]) == sorted(rounds[1]) == sorted(rounds[2])


def test_correlated_takes_a_concentration_and_its_default_is_not_part_of_the_record() -> None:
    plain, even = get_protocol("correlated"), {"concentration": 50.0}
    assert plain.to_json() == plain.to_json(options={"concentration": 0.1}) == {"name": "correlated"}
    assert plain.to_json(options=even) == {"name": "correlated", "options": even}
    assert order_text(plain.to_json(), 3).endswith("shares of a Dirichlet of 0.1, seed 3")
    assert order_text(plain.to_json(options=even), 3).endswith("shares of a Dirichlet of 50.0, seed 3")
    assert marks(built("correlated", **even)) != marks(built("correlated"))


def test_protocols_that_reset_show_the_continual_stream() -> None:
    expected = [10 * number + i for number in range(3) for i in shuffled(0)]
    assert marks(built("reset-at-shift")) == marks(built("episodic")) == expected
    assert marks(built("wild-single", batch_size=1)) == expected
    assert marks(built("wild-mixed", 4)) == marks(built("mixed", 4))


def test_a_stream_knows_the_steps_at_which_its_segments_begin() -> None:
    stream = built("reset-at-shift")
    assert stream.shifts == stream.starting_at(4).shifts == {0, 3, 6}
    assert stream.shifts == {b.index for b in stream if b.index == 0 or b.domain != "abc"[(b.index - 1) // 3]}


def test_wild_single_has_batches_of_one() -> None:
    with pytest.raises(ParameterError, match="batches of 1"):
        built("wild-single", batch_size=4)


def test_options_are_checked_and_complete() -> None:
    protocol = Protocol("p", lambda parts: None, options={"a": 0.5, "b": 3, "c": "x"})  # type: ignore[arg-type, return-value]
    assert protocol.with_options({"a": 1}) == {"a": 1.0, "b": 3, "c": "x"}
    assert protocol.to_json(options={"b": 4})["options"] == {"a": 0.5, "b": 4, "c": "x"}
    for wrong in ({"d": 1}, {"b": 1.5}, {"b": True}, {"c": 1}, {"a": "x"}):
        with pytest.raises(ParameterError, match="option"):
            protocol.with_options(wrong)
    with pytest.raises(ParameterError, match="It has none"):
        get_protocol("cdc").with_options({"speed": 1})


@pytest.mark.parametrize("name", ["cdc", "mixed-correlated", "wild-sorted", "recurring-correlated"])
def test_the_same_seed_gives_the_same_stream_and_the_global_generators_are_left_alone(name: str) -> None:
    before = torch.get_rng_state(), random.getstate()
    assert marks(built(name, 3)) == marks(built(name, 3)) != marks(built(name, 4))
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]


def test_the_code_of_a_protocol_is_found_behind_a_partial_and_in_an_object() -> None:
    class Called:
        def __call__(self, parts: object) -> None:
            pass

    def build(parts: object, size: int = 1) -> None:
        pass

    builders: list[Any] = [build, partial(build, size=2), Called()]
    made = [Protocol("p", builder).to_json().get("code") for builder in builders]
    assert made == [sha256_of(Path(__file__))] * 3


def test_a_protocol_must_return_a_stream_with_images_that_repeats_as_often_as_it_says() -> None:
    parts = StreamParts(DOMAINS[:1], batch_size=5, times=3)

    def fails(parts: StreamParts) -> Stream:
        raise ValueError("no stream today")

    for build, error, words in (
        (fails, UserCodeError, "no stream today"),
        (lambda parts: Stream([], batch_size=5), ParameterError, "no segment"),
        (lambda parts: continual(parts.domains, batch_size=5), ParameterError, "3 times; its stream has 2"),
    ):
        with pytest.raises(error, match=words):
            Protocol("p", build, repeats=True).stream(parts)


def test_an_option_too_large_for_a_float_is_refused() -> None:
    with pytest.raises(ParameterError, match="must be of the type float"):
        Protocol("p", lambda parts: None, options={"a": 0.5}).with_options({"a": 10**400})  # type: ignore[arg-type, return-value]
