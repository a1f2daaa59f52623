"""Every method on every family of models against every point of the contract, even where points overlap."""

from __future__ import annotations

import random
import sys
from functools import partial

from contract.variations import SETTINGS, VARIATIONS
from ctta.errors import ContractBroken, CttaError
from ctta.registry import methods
from ctta.testing import Subject, checks
from ctta.testing.families import FAMILIES
from ctta.testing.models import bn_cnn, gn_cnn, ln_vit
from ctta.testing.task import trained

MODELS = {"bn": bn_cnn, "ln": ln_vit, "gn": gn_cnn, **FAMILIES}
# Points that bring their own models, or whose subject is the method and not the model: the short form has them all.
ONCE = {"any_norm", "memory_is_flat", "every_argument_counts", "constructor_reads_nothing", "clean_stream"}
# bfloat16 weights cannot agree with float64 within the rounding of float32.
LEFT_OUT = {("mixed_precision", "double_precision")}

#: How many of the triples of method, model and point the long form tries: all of them.
LONG = len(methods()) * len(MODELS) * sum(name not in ONCE for name, _ in checks())


def main(count: int, seed: int) -> None:
    """Try `count` triples in random order and raise AssertionError if a method breaks a point."""
    triples = [
        (method, model, name, check)
        for method in sorted(methods())
        for model in MODELS
        for name, check in checks()
        if name not in ONCE and (model, name) not in LEFT_OUT
    ]
    random.Random(seed).shuffle(triples)
    kept, refused, wrong = 0, 0, []
    for method, model, name, check in triples[:count]:
        make = partial(methods()[method], **SETTINGS.get(method, {}))
        try:
            make(trained(MODELS[model]))
        except CttaError:
            refused += 1
            continue
        try:
            check(Subject(make, partial(trained, MODELS[model]), variations=VARIATIONS.get(method, {})))
            kept += 1
        except ContractBroken as error:
            wrong.append(f"{method} on {model}, {name}: {error}")
    sys.stdout.write(f"contract_points: {kept} kept, {refused} refused by name, {len(wrong)} broken\n")
    if wrong:
        raise AssertionError("\n".join(wrong))


if __name__ == "__main__":
    main(LONG, seed=0)
