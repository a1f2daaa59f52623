"""Wrap your own classifier in DMSE, adapt it to a stream, save it and resume. Runs offline.

python examples/adapt_my_model.py
"""

import tempfile
from pathlib import Path

import torch
from torch import nn

import ctta

torch.manual_seed(0)

# Your model: any nn.Module that maps images to logits. This one is untrained, so only the mechanics are shown.
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(16, 10),
)

# Three lines: images stay in [0, 1], the classifier normalises them, the adapter predicts and then learns.
classifier = ctta.Classifier(net, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
model = ctta.DMSE(classifier)
logits = model(torch.rand(32, 3, 32, 32))

# A step also returns the loss and a log: entropy, the teacher's momentum alpha, resets, prototypes moved.
for hour in range(3):
    darker = torch.rand(32, 3, 32, 32) / (hour + 1)
    step = model.step(darker)
    print(f"hour {hour}: entropy {step.log['entropy']:.3f} nats, alpha {step.log['alpha']:.4f}, loss {step.loss:.3f}")

# Save the adapter and resume later without losing anything.
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.ctta"
    model.save(path)
    resumed = ctta.Adapter.load(path, classifier)

x = torch.rand(32, 3, 32, 32)
assert torch.equal(model(x), resumed(x))
print(f"resumed after {resumed.steps - 1} steps: the predictions are the same, bit for bit")
model.reset()  # back to the source model
