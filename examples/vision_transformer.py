"""Adapt a vision transformer of Hugging Face: no batch norm, and batches of one image. Runs offline.

The network is tiny and is trained here, on handwritten digits, in a few seconds; nothing is downloaded. A pretrained
one is used in the same way: ViTForImageClassification.from_pretrained("path/to/folder"). Needs the extra `models`.
An example of how to use it, not a result: network, corruptions and severity were changed once, after a first network
that had learnt too little.

python examples/vision_transformer.py
"""

import torch
from torch.nn.functional import cross_entropy
from transformers import ViTConfig, ViTForImageClassification

import ctta
from ctta.bench import evaluate
from ctta.datasets.digits import digits
from ctta.errors import NothingToTrain
from ctta.streams import continual, corrupted

torch.set_num_threads(1)
torch.manual_seed(0)
data = digits()

# 1. The network. It returns an object with `logits`, which is all that ctta asks for.
config = ViTConfig(
    image_size=32, patch_size=8, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128
)
config.num_labels = 10
vit = ViTForImageClassification(config)
x, y = data.train.floats(), data.train.y
optimizer = torch.optim.AdamW(vit.parameters(), 3e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=40 * 15)
for _ in range(40):
    for part in torch.randperm(len(x)).split(64):
        optimizer.zero_grad()
        cross_entropy(vit((x[part] - 0.5) / 0.5).logits, y[part]).backward()
        optimizer.step()
        schedule.step()
vit.eval()

# 2. The classifier. It normalises images in [0, 1] as in training, and finds the head by itself.
model = ctta.Classifier(vit, mean=[0.5] * 3, std=[0.5] * 3)
print(f"head {model.head_name!r}, {model.num_classes} classes, {model.num_features} features")

# 3. No batch statistics. A transformer has layer norms only. A method that needs batch norms says so at once.
try:
    ctta.BN(model)
except NothingToTrain as error:
    print(f"BN refuses: {error}")

# 4. Methods that adapt it. Tent and SAR train the norm layers, DMSE every parameter. Most of what adaptation gains on a
#    network with batch norm comes from batch statistics, which a transformer does not have: expect less here.
kinds = ["gaussian_noise", "motion_blur", "elastic_transform", "pixelate"]
domains = corrupted(data.stream, kinds, severities=3, scale="imagenet", keep=True)
stream = continual(domains, batch_size=50, images=200)
for adapter in (ctta.Source(model), ctta.Tent(model), ctta.SAR(model), ctta.DMSE(model, lr=3e-4)):
    report = evaluate(adapter, stream)
    errors = "  ".join(f"{name} {error:5.1f}" for name, error in report.errors.items())
    print(f"{report.method:7} {errors}  mean {report.mean:5.1f} %")

# 5. Batches of one. Without batch norm any method takes them. Learning from every single image needs a lower rate;
#    with a window the adapter predicts at once and learns once for every 16 images.
single = continual(domains, batch_size=1, images=50)
for options in ({"lr": 1e-3 / 50}, {"window": 16}):
    adapter = ctta.Tent(model, **options)
    print(f"one image at a time, {options}: mean {evaluate(adapter, single).mean:.1f} %")
