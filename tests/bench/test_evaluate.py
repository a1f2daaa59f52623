import json
import math

import pytest
import torch
from torch import nn

from ctta import Adapter, Classifier, Step, Tent
from ctta.bench import evaluate
from ctta.errors import MethodError
from ctta.streams import Batch


class Scripted(Adapter):
    """Predicts class 0 for every image until it has learnt once, class 1 afterwards."""

    learns = False
    passes = (1, 0)

    def __init__(self, model):
        super().__init__(model)
        self.begin(())

    def adapt(self, x):
        logits = torch.zeros(len(x), 2)
        logits[:, min(self.steps, 1)] = 1.0
        return Step(logits, loss=float(self.steps), log={"alpha": 0.5})


@pytest.fixture
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Classifier(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2)))


def batch(index, domain, labels):
    generator = torch.Generator().manual_seed(index)
    return Batch(torch.rand(len(labels), 3, 8, 8, generator=generator), torch.tensor(labels), domain, 5, index)


def test_errors_are_percent_per_domain_of_answers_made_before_learning(model):
    stream = [batch(0, "fog", [0, 0, 1, 0]), batch(1, "fog", [1, 1]), batch(2, "snow", [0, 1, 0, 0])]
    report = evaluate(Scripted(model), stream)
    # fog: 1 of 4 wrong as class 0, then 0 of 2 as class 1; snow: 3 of 4 wrong as class 1.
    assert report.errors == {"fog": pytest.approx(100 / 6), "snow": 75.0}
    assert report.mean == pytest.approx((100 / 6 + 75) / 2)
    assert [step["error"] for step in report.steps] == [25.0, 0.0, 75.0]
    assert report.images == 10


def test_every_step_is_logged_with_what_the_method_said(model):
    told = []
    report = evaluate(
        Scripted(model),
        [batch(4, "fog", [0, 1]), batch(5, "snow", [1, 1, 1])],
        progress=lambda seen, log: told.append((seen.index, log)),
    )
    assert [(s["index"], s["domain"], s["severity"], s["images"], s["loss"], s["alpha"]) for s in report.steps] == [
        (4, "fog", 5, 2, 0.0, 0.5),
        (5, "snow", 5, 3, 1.0, 0.5),
    ]
    assert told == [(4, report.steps[0]), (5, report.steps[1])]


def test_the_loop_is_the_loop_a_user_would_write(model):
    stream = [batch(i, "fog", [0, 1, 1, 0]) for i in range(4)]
    report = evaluate(Tent(model, lr=0.1), stream)
    mine = Tent(model, lr=0.1)
    errors = [100 * (mine(b.x).argmax(1) != b.y).float().mean().item() for b in stream]
    assert [step["error"] for step in report.steps] == errors


def test_a_report_is_plain_json(model):
    report = evaluate(Tent(model), [batch(0, "fog", [0, 1])])
    read = json.loads(report.to_json())
    assert read["method"] == "tent"
    assert read["settings"]["lr"] == 1e-3
    assert read["errors"] == report.errors
    assert read["steps"][0]["domain"] == "fog"


def test_speed_counts_the_images_and_the_time_in_the_adapter(model):
    report = evaluate(Tent(model), [batch(0, "fog", [0, 1]), batch(1, "fog", [1, 0, 1])])
    assert report.seconds == pytest.approx(sum(step["seconds"] for step in report.steps))
    assert report.images_per_second == pytest.approx(5 / report.seconds)


def test_a_step_counts_right_and_wrong_answers_by_their_entropy(model):
    class Told(Scripted):
        def adapt(self, x):
            # Certain of class 0, of class 1, undecided, and in between.
            return Step(torch.tensor([[50.0, 0.0], [0.0, 50.0], [0.0, 0.0], [2.0, 0.0]]))

    step = evaluate(Told(model), [batch(0, "fog", [0, 0, 0, 1])]).steps[0]
    p = 1 / (1 + math.exp(-2.0))
    between = int(20 * -(p * math.log(p) + (1 - p) * math.log(1 - p)) / math.log(2))
    assert {i: n for i, n in enumerate(step["entropy_right"]) if n} == {0: 1, 19: 1}
    assert {i: n for i, n in enumerate(step["entropy_wrong"]) if n} == {0: 1, between: 1}


@pytest.mark.parametrize("log", [{"wrong": 0.0}, {"images": 7.0}, {"domain": 1.0}, {"loss": 1.0}])
def test_a_method_cannot_log_its_own_score(model, log):
    class Boasting(Scripted):
        def adapt(self, x):
            return Step(torch.zeros(len(x), 2), log=log)

    with pytest.raises(MethodError, match=f"Boasting logs '{next(iter(log))}'"):
        evaluate(Boasting(model), [batch(0, "fog", [0, 1])])


@pytest.mark.parametrize("value", [torch.tensor(1.0), "high"])
def test_a_method_logs_plain_numbers(model, value):
    class Chatty(Scripted):
        def adapt(self, x):
            return Step(torch.zeros(len(x), 2), log={"note": value})

    with pytest.raises(MethodError, match="logs 'note' as"):
        evaluate(Chatty(model), [batch(0, "fog", [0, 1])])


def test_logits_that_are_not_finite_are_wrong_whatever_the_label(model):
    class Broken(Scripted):
        def adapt(self, x):
            logits = torch.tensor([[1.0, 0.0]]).repeat(len(x), 1)
            logits[0] = float("nan")
            return Step(logits)

    report = evaluate(Broken(model), [batch(0, "fog", [0, 0, 0, 1])])
    assert report.errors == {"fog": 50.0}
    assert report.steps[0]["not_finite"] == 1
