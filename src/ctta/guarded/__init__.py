"""An adapter with a guard: it stops learning, goes back, or lets the unadapted network answer when learning harms."""

from ctta.guarded.adapter import Guarded
from ctta.guarded.reference import Reference

__all__ = ["Guarded", "Reference"]
