"""Send the numbers of runs and served streams to TensorBoard, MLflow or Weights & Biases, without any network."""

from ctta.track.target import Target, check_targets, open_tracker, parse_target
from ctta.track.tracker import RunName, Tracker

__all__ = ["RunName", "Target", "Tracker", "check_targets", "open_tracker", "parse_target"]
