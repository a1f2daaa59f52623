"""Upper limits for measured values, by title of the report and name of the row."""

from __future__ import annotations

TARGETS: dict[str, dict[str, float]] = {
    "step: ResNet-20, 32 px, batch 200": {
        "tent fp32": 2.2,
        "santa fp32": 5.5,
        "rmt fp32": 6.5,
        "rmt bf16": 4.5,
        "dmse fp32": 6.5,
        "dmse bf16": 4.5,
        "cotta fp32": 40.0,
        "dmse fp32 / straightforward": 0.75,
        "dmse bf16 / straightforward": 0.5,
    },
    "step: ResNet-50, 224 px, batch 16, 1000 classes": {
        "dmse fp32 / straightforward": 0.6,
        "dmse bf16 / straightforward": 0.4,
    },
    "step: a head of 1000 classes on 2048 features, batch 64": {
        "dmse fp32 / straightforward": 0.75,
        "dmse bf16 / straightforward": 0.5,
    },
    "blend: ResNet-20, 32 px, batch 200": {"tent prior:16": 1.05, "dmse prior:16": 1.05},
    "answer: ResNet-20, 32 px, batch 64": {"dmse": 0.32},
    "split: ResNet-20, 32 px, batch 64": {"dmse: step / adapt alone": 1.04, "dmse: ask + learn / adapt alone": 1.04},
    # In units of teacher + one source copy + prototypes.
    "memory: DMSE beyond training, ResNet-20, 32 px, batch 200": {
        "beyond training on the batch": 1.0,
        "beyond training on the batch, recompute": 1.0,
        "beyond training on the batch and its view": 1.0,
    },
    "start": {
        "import ctta, beyond torch": 0.2,
        "first use of ctta.DMSE": 0.2,
        "ctta --help": 0.4,
    },
}
