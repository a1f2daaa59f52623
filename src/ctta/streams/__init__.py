"""What arrives, in which order."""

from ctta.streams.arrays import Images
from ctta.streams.batch import Batch
from ctta.streams.digits import Digits, digits
from ctta.streams.protocols import continual
from ctta.streams.stream import Segment, Stream

__all__ = ["Batch", "Digits", "Images", "Segment", "Stream", "continual", "digits"]
