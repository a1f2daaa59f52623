"""How methods do on streams."""

from ctta.bench.evaluate import Progress, Report, evaluate

__all__ = ["Progress", "Report", "evaluate"]
