"""An adapter with a guard that stops harmful learning, rolls back, or lets the unadapted network predict."""

from ctta.guarded.adapter import Guarded
from ctta.guarded.reference import Reference

__all__ = ["Guarded", "Reference"]
