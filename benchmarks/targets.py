"""What the measurements must not exceed, by the name of their row."""

TARGETS = {
    # Plain forward passes of the same network, in its default layout, that a step costs.
    "step/resnet20/fp32/tent": 2.2,
    "step/resnet20/fp32/santa": 5.5,
    "step/resnet20/fp32/rmt": 6.5,
    "step/resnet20/fp32/dmse": 6.5,
    "step/resnet20/fp32/cotta": 40.0,
    "step/resnet20/bf16/rmt": 4.5,
    "step/resnet20/bf16/dmse": 4.5,
    # A DMSE step in units of the straightforward one in fp32.
    "baseline/resnet20/fp32/dmse": 0.75,
    "baseline/resnet20/bf16/dmse": 0.5,
    "baseline/resnet50/fp32/dmse": 0.6,
    "baseline/resnet50/bf16/dmse": 0.4,
    "baseline/head1000/fp32/dmse": 0.75,
    "baseline/head1000/bf16/dmse": 0.5,
    # Peak beyond plain training of the same passes, in units of teacher + source copy + prototypes.
    "memory/resnet20/fp32/dmse beyond training": 1.0,
    "memory/resnet50/fp32/dmse beyond training": 1.0,
    # Seconds.
    "start/import ctta": 0.2,
    "start/every public name": 0.2,
    "start/ctta --help": 0.4,
}
