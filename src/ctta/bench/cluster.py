"""Earlier home of `ClusterError`."""

from ctta.errors import ClusterError

__all__ = ["ClusterError"]
