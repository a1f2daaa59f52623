"""Train a small CNN of your own, let its images drift, and adapt it on the way. Runs offline in a few seconds.

python examples/drifting_stream.py [FOLDER FOR THE FIGURE]
"""

import sys
from pathlib import Path

import torch
from matplotlib import pyplot as plt
from torch import nn
from torch.nn.functional import cross_entropy

import ctta
from ctta.bench import evaluate
from ctta.datasets.digits import digits
from ctta.plots.style import METHOD_STYLES
from ctta.streams import corrupted, gradual

torch.set_num_threads(1)
torch.manual_seed(0)
data = digits()  # 897 handwritten digits to train on, 900 others to stream


# 1. Your own network. It maps images in [0, 1] to logits.
def block(channels_in: int, channels_out: int) -> nn.Sequential:
    """Halve the size of the image."""
    conv = nn.Conv2d(channels_in, channels_out, 3, stride=2, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(channels_out), nn.ReLU())


net = nn.Sequential(
    block(3, 16), block(16, 32), block(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)
)
optimizer = torch.optim.Adam(net.parameters(), 3e-3)
x, y = data.train.floats(), data.train.y
for _ in range(12):
    for part in torch.randperm(len(x)).split(64):
        optimizer.zero_grad()
        cross_entropy(net(x[part]), y[part]).backward()
        optimizer.step()
net.eval()

# 2. A stream that drifts. Every corruption rises from severity 1 to 5 and falls again, without notice.
kinds = ["gaussian_noise", "motion_blur", "brightness", "pixelate"]
domains = corrupted(data.stream, kinds, severities=range(1, 6), scale="imagenet", keep=True)
stream = gradual(domains, batch_size=50, images=100)

# 3. One line per method. Every method predicts a batch before it learns from it, and sees no label.
reports = {}
for adapter in (ctta.Source(net), ctta.BN(net), ctta.Tent(net), ctta.DMSE(net)):
    report = evaluate(adapter, stream)
    reports[report.method] = report
    errors = "  ".join(f"{name} {error:5.1f}" for name, error in report.errors.items())
    print(f"{report.method:7} {errors}  mean {report.mean:5.1f} %")

# 4. The error along the stream. Each point is the mean of the last four batches.
figure, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
for name, report in reports.items():
    along = torch.tensor([step["error"] for step in report.steps])
    style = METHOD_STYLES[name]  # colours that can be told apart with any colour vision
    axes.plot(range(4, len(along) + 1), along.unfold(0, 4, 1).mean(1), color=style.colour, ls=style.dashes, label=name)
severity = torch.tensor([batch.severity for batch in stream])
axes.fill_between(range(1, len(severity) + 1), severity * 4, step="mid", color="0.9", label="severity (1 to 5)")
axes.set(xlabel="batch of 50 images", ylabel="error (%)", ylim=(0, 100))
axes.legend(ncols=5, frameon=False, loc="upper center", fontsize="small")
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
folder.mkdir(exist_ok=True, parents=True)
figure.savefig(folder / "drifting_stream.svg")
