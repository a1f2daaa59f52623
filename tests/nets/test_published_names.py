"""Names and shapes of the published checkpoints, written here as rules, against the networks' own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from ctta import nets

Entry = tuple[str, tuple[int, ...]]
Entries = Iterator[Entry]


def bn(name: str, channels: int) -> Entries:
    for part in ("weight", "bias", "running_mean", "running_var"):
        yield f"{name}.{part}", (channels,)


def conv(name: str, inputs: int, outputs: int, kernel: int) -> Entries:
    yield f"{name}.weight", (outputs, inputs, kernel, kernel)


def linear(name: str, inputs: int, outputs: int) -> Entries:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def cifar_resnet(blocks: int, classes: int, head: str) -> Entries:
    yield from conv("conv1", 3, 16, 3)
    yield from bn("bn1", 16)
    inputs = 16
    for stage, width in enumerate((16, 32, 64), 1):
        for i in range(blocks):
            at = f"layer{stage}.{i}"
            yield from conv(f"{at}.conv1", inputs, width, 3)
            yield from conv(f"{at}.conv2", width, width, 3)
            yield from bn(f"{at}.bn1", width)
            yield from bn(f"{at}.bn2", width)
            if head == "fc" and inputs != width:
                yield from conv(f"{at}.downsample.0", inputs, width, 1)
                yield from bn(f"{at}.downsample.1", width)
            inputs = width
    yield from linear(head, 64, classes)


def wide_resnet() -> Entries:
    yield from conv("conv1", 3, 16, 3)
    inputs = 16
    for stage, width in enumerate((160, 320, 640), 1):
        for i in range(4):
            at = f"block{stage}.layer.{i}"
            yield from bn(f"{at}.bn1", inputs)
            yield from conv(f"{at}.conv1", inputs, width, 3)
            yield from bn(f"{at}.bn2", width)
            yield from conv(f"{at}.conv2", width, width, 3)
            if i == 0:
                yield from conv(f"{at}.convShortcut", inputs, width, 1)
            inputs = width
    yield from bn("bn1", 640)
    yield from linear("fc", 640, 10)


def resnext() -> Entries:
    yield from conv("conv_1_3x3", 3, 64, 3)
    yield from bn("bn_1", 64)
    inputs = 64
    for stage, (inner, outputs) in enumerate(((128, 256), (256, 512), (512, 1024)), 1):
        for i in range(3):
            at = f"stage_{stage}.{i}"
            yield from conv(f"{at}.conv_reduce", inputs, inner, 1)
            yield from bn(f"{at}.bn_reduce", inner)
            yield from conv(f"{at}.conv_conv", inner // 4, inner, 3)
            yield from bn(f"{at}.bn", inner)
            yield from conv(f"{at}.conv_expand", inner, outputs, 1)
            yield from bn(f"{at}.bn_expand", outputs)
            if i == 0:
                yield from conv(f"{at}.downsample.0", inputs, outputs, 1)
                yield from bn(f"{at}.downsample.1", outputs)
            inputs = outputs
    yield from linear("classifier", 1024, 100)


def resnet50(classes: int, prefix: str = "") -> Entries:
    yield from conv(f"{prefix}conv1", 3, 64, 7)
    yield from bn(f"{prefix}bn1", 64)
    inputs = 64
    for stage, (inner, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 1):
        for i in range(blocks):
            at = f"{prefix}layer{stage}.{i}"
            sides = ((inputs, inner, 1), (inner, inner, 3), (inner, 4 * inner, 1))
            for k, (before, after, kernel) in enumerate(sides, 1):
                yield from conv(f"{at}.conv{k}", before, after, kernel)
                yield from bn(f"{at}.bn{k}", after)
            if i == 0:
                yield from conv(f"{at}.downsample.0", inputs, 4 * inner, 1)
                yield from bn(f"{at}.downsample.1", 4 * inner)
            inputs = 4 * inner
    yield from linear(f"{prefix}fc", 2048, classes)


def domainnet() -> Entries:
    yield from resnet50(256, "encoder.0.")
    yield from bn("encoder.1", 256)
    yield from [("fc.weight_g", (126, 1)), ("fc.weight_v", (126, 256)), ("fc.bias", (126,))]


def efficientnet() -> Entries:
    yield from conv("_conv_stem", 3, 32, 3)
    yield from bn("_bn0", 32)
    widths = [32, 16, 24, 24, 40, 40, 80, 80, 80, 112, 112, 112, 192, 192, 192, 192, 320]
    kernels = [3, 3, 3, 5, 5, 3, 3, 3, 5, 5, 5, 5, 5, 5, 5, 3]
    for i, (inputs, outputs, kernel) in enumerate(zip(widths, widths[1:], kernels, strict=False)):
        at, inner = f"_blocks.{i}", inputs if i == 0 else 6 * inputs
        if i:
            yield from conv(f"{at}._expand_conv", inputs, inner, 1)
            yield from bn(f"{at}._bn0", inner)
        yield f"{at}._depthwise_conv.weight", (inner, 1, kernel, kernel)
        yield from bn(f"{at}._bn1", inner)
        yield from conv(f"{at}._project_conv", inner, outputs, 1)
        yield from bn(f"{at}._bn2", outputs)
    yield from conv("_conv_head", 320, 1280, 1)
    yield from bn("_bn1", 1280)
    yield from linear("_fc", 1280, 1000)


# The counts are the ones published with the networks, or counted on the classes that made the files.
PUBLISHED: dict[str, tuple[Callable[[], Entries], int]] = {
    "cifar10_resnet20": (lambda: cifar_resnet(3, 10, "linear"), 269_722),
    "cifar10_resnet56": (lambda: cifar_resnet(9, 10, "linear"), 853_018),
    "cifar100_resnet56": (lambda: cifar_resnet(9, 100, "fc"), 861_620),
    "cifar10_wrn28_10": (wide_resnet, 36_479_194),
    "cifar100_resnext29": (resnext, 6_900_132),
    "imagenet_resnet50": (lambda: resnet50(1000), 25_557_032),
    "domainnet126_resnet50": (domainnet, 25_557_032 - 2_049_000 + 2049 * 256 + 2 * 256 + 126 * 258),
    "imagenet_efficientnet_lite0": (efficientnet, 4_652_008),
}


def test_every_model_is_covered() -> None:
    assert set(PUBLISHED) == {name for name, m in nets.MODELS.items() if "made by: ctta train" not in m.source}


@pytest.mark.parametrize("name", PUBLISHED)
def test_names_shapes_and_counts_are_the_published_ones(name: str) -> None:
    rule, count = PUBLISHED[name]
    with torch.device("meta"):
        net = nets.build(name)
    own = {key: tuple(value.shape) for key, value in net.state_dict().items()}
    counters = {key for key in own if key.endswith("num_batches_tracked")}
    assert {key: shape for key, shape in own.items() if key not in counters} == dict(rule())
    assert counters == {key.replace("running_mean", "num_batches_tracked") for key in own if "running_mean" in key}
    assert sum(p.numel() for p in net.parameters()) == count
