"""The statistics that batch norms normalise with: the batch's, the source's, or a blend of both.

The statistics of the batch are right for a strong shift and large batches of mixed classes. For clean or mildly shifted
images, small batches, or batches that hold few classes, they are worse than those of the source. Pass one of these
classes, or its short form as text, as the ``statistics`` of any method that normalises by batch statistics:

    ctta.Tent(net, statistics=ctta.statistics.Prior(16))
    ctta.Tent(net, statistics="prior:16")

To write your own, derive from `Statistics` and override `Statistics.share`.
"""

from ctta.statistics.base import Moments, Seen, Statistics
from ctta.statistics.kinds import Auto, Batch, Misfit, Moving, Prior, Share, Source
from ctta.statistics.short_form import WORDS, as_statistics, is_statistics, short_form

__all__ = [
    "WORDS",
    "Auto",
    "Batch",
    "Misfit",
    "Moments",
    "Moving",
    "Prior",
    "Seen",
    "Share",
    "Source",
    "Statistics",
    "as_statistics",
    "is_statistics",
    "short_form",
]
