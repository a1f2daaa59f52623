"""Write a method of your own in twenty lines, test it, and compare it with the built-in ones. Runs offline.

python examples/new_method.py
ctta run examples/new_method.py:Confident digits --images 200 --batch-size 50     # the same class in a benchmark
"""

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

import ctta
from ctta.adapter import Adapter, Learning, Step
from ctta.bench import evaluate
from ctta.datasets.digits import digits
from ctta.errors import ContractBroken
from ctta.nets.by_name import load_model
from ctta.norms import norm_affine, use_batch_statistics
from ctta.options import SharedOptions
from ctta.streams import continual, corrupted
from ctta.testing import check_adapter


# 1. The method. Its constructor says what is trained, `adapt` is the algorithm.
class Confident(Adapter):
    """Train the norm layers on the model's own labels, where it is confident.

    Args:
        model: The source model, or a `Classifier` around it.
        threshold: Learn from images whose largest probability is above this.
        shared: Options that every method takes; see `Adapter`.
    """

    trains = "the weights and biases of normalisation layers"
    passes = (1, 1)  # forward passes per step, and how many are differentiated

    def __init__(self, model: nn.Module, *, threshold: float = 0.9, **shared: Unpack[SharedOptions]) -> None:
        super().__init__(model, **shared)
        self.threshold = threshold  # under its own name: checkpoints and records read it there
        use_batch_statistics(self.student)
        self.begin(norm_affine(self.student))  # last: remembers the state that reset() returns to

    def adapt(self, x: Tensor) -> Learning:
        """Predict, then take one step of cross-entropy on confident images."""
        logits = self.student(x)
        yield logits.detach()  # the prediction, before anything is learnt
        confidence, label = logits.detach().softmax(1).max(1)
        sure = confidence > self.threshold
        log = {"sure": float(sure.sum())}
        if not sure.any():
            return Step(logits.detach(), log=log)
        loss = nn.functional.cross_entropy(logits[sure], label[sure])
        self.descend(loss)  # skips a step that is not finite, and can be undone
        return Step(logits.detach(), loss.item(), log)


# 2. Test and compare. The contract has nineteen points: state, resuming, seeds, small batches, NaN and others.
if __name__ == "__main__":
    torch.set_num_threads(1)
    try:
        check_adapter(Confident, variations={"threshold": {"threshold": 0.5}})
        print("Confident keeps the contract")
    except ContractBroken as error:
        print(f"the contract is broken: {error}")

    model = load_model("digits_resnet8").classifier
    kinds = ["gaussian_noise", "motion_blur", "brightness", "pixelate"]
    stream = continual(corrupted(digits().stream, kinds, scale="imagenet", keep=True), batch_size=50, images=200)
    for adapter in (ctta.BN(model), ctta.Tent(model), Confident(model), Confident(model, threshold=0.5)):
        report = evaluate(adapter, stream)
        print(f"{report.method:10} {report.mean:5.1f} %  {adapter.settings.get('threshold', '')}")
