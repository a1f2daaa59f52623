"""What Tent, EATA and SAR minimise: the entropy of the prediction, or the loss of COME.

Zhang et al., "COME: Test-time adaption by conservatively minimizing entropy", ICLR 2025.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from torch import Tensor

from ctta.functional import entropy, opinion_entropy
from ctta.options import check_bounds

EntropyLoss = Literal["entropy", "come"]


def entropy_loss(owner: Any) -> Callable[[Tensor], Tensor]:
    """Return the function of logits (N, C) that a method minimises, selects by and resets by: (N,).

    Args:
        owner: A method with the arguments ``loss`` and ``come_mass``.
    """
    check_bounds(owner, come_mass=(1e-6, 1e12))
    # Differs from the authors' code, which hard-codes K = 1000 for any number of classes.
    return partial(opinion_entropy, mass=owner.come_mass) if owner.loss == "come" else entropy
