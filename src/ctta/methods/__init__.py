"""One file per paper, named as people say it."""

from ctta.methods.bn import BN
from ctta.methods.dmse import DMSE
from ctta.methods.source import Source
from ctta.methods.tent import Tent

__all__ = ["BN", "DMSE", "Source", "Tent"]
