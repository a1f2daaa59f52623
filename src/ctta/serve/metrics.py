"""Prometheus metrics of a service: what the front ends count, and the status of every stream at each scrape."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import get_args

from ctta.errors import MissingExtra
from ctta.guard import Phase
from ctta.serve.types import MODES, StreamStatus

try:
    from prometheus_client import CollectorRegistry, Counter, Histogram
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    raise MissingExtra("prometheus-client", "serve") from error

#: The label of streams beyond the limit.
OTHER = "other"
#: The content type of `Metrics.text`.
CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_PHASES = (*get_args(Phase), "off")


def _last_time(status: StreamStatus) -> float | None:
    return status.snapshots[-1].time if status.snapshots else None


# Name, help text, and the value from a stream's status; None leaves the stream out.
_COUNTERS: tuple[tuple[str, str, Callable[[StreamStatus], int]], ...] = (
    ("ctta_images", "Images answered.", lambda s: s.answered),
    ("ctta_batches_learnt", "Batches learnt from.", lambda s: s.learnt),
    ("ctta_batches_shed", "Batches not learnt because other requests waited.", lambda s: s.shed),
    ("ctta_resets", "Resets and rollbacks, by the method, the guard or by hand.", lambda s: s.resets),
    ("ctta_labelled_images", "Images for which a label came.", lambda s: s.labelled),
    ("ctta_failed_batches", "Batches that could not be answered or learnt because of an error.", lambda s: s.failures),
    ("ctta_failed_snapshots", "Snapshots that could not be written.", lambda s: s.unsaved),
    ("ctta_failed_audit_lines", "Lines of the audit that could not be written.", lambda s: s.unaudited),
    ("ctta_failed_records", "Batches and uploads that could not be recorded.", lambda s: s.unrecorded),
)
_GAUGES: tuple[tuple[str, str, Callable[[StreamStatus], float | None]], ...] = (
    ("ctta_queue_images", "Images that wait.", lambda s: s.queue),
    ("ctta_stopped", "1 if the stream's thread ended with an error, else 0.", lambda s: float(s.stopped is not None)),
    ("ctta_steps", "Steps learnt by the adapter; a rollback reduces it.", lambda s: s.steps),
    ("ctta_skipped_steps", "Steps without an update because something was not finite.", lambda s: s.skipped),
    ("ctta_entropy", "Mean normalised entropy of the last predictions.", lambda s: s.entropy),
    ("ctta_diversity", "Normalised entropy of the mean of the last predictions.", lambda s: s.diversity),
    (
        "ctta_agreement",
        "Share of the last predictions that the unadapted network makes too.",
        lambda s: s.agreement,
    ),
    ("ctta_alpha", "The method's momentum in the last step.", lambda s: s.alpha),
    ("ctta_loss", "The loss of the last step.", lambda s: s.loss),
    ("ctta_error_percent", "Error over the labelled images.", lambda s: s.error),
    ("ctta_snapshots", "Snapshots kept.", lambda s: len(s.snapshots)),
    ("ctta_last_snapshot_timestamp_seconds", "When the newest snapshot was taken.", _last_time),
)


class Metrics:
    """The metrics of one service, in their own registry.

    Args:
        streams: Returns the status of every stream.
        most_streams: How many streams have their own label; the others share the label "other".
        damaged: Returns how many streams on disk cannot be read.
    """

    def __init__(
        self,
        streams: Callable[[], Sequence[StreamStatus]],
        most_streams: int,
        damaged: Callable[[], int],
    ) -> None:
        self._registry = CollectorRegistry()
        self._most = most_streams
        self._labels: set[str] = set()
        self._lock = threading.Lock()
        self._requests = Counter(
            "ctta_requests", "Requests by front end and status.", ["front", "code"], registry=self._registry
        )
        self._seconds = Histogram(
            "ctta_answer_seconds",
            "Time from the whole request to its answer.",
            ["stream"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._registry.register(_Streams(streams, self._label, damaged))

    def request(self, front: str, code: str) -> None:
        """Count a request that was replied to.

        Args:
            front: The front end: "http" or "grpc".
            code: The status of the reply, one of the few that the front end uses.
        """
        self._requests.labels(front, code).inc()

    def answered(self, stream: str, seconds: float) -> None:
        """Count an answer.

        Args:
            stream: The name of an existing stream.
            seconds: How long it took.
        """
        self._seconds.labels(self._label(stream) or OTHER).observe(seconds)

    def forget(self, stream: str) -> None:
        """Release the label of a stream that was removed.

        Args:
            stream: The stream's name.
        """
        with self._lock:
            if stream in self._labels:
                self._labels.remove(stream)
                with suppress(KeyError):
                    self._seconds.remove(stream)

    def text(self) -> bytes:
        """Return every metric in the Prometheus text format."""
        return generate_latest(self._registry)

    def _label(self, stream: str) -> str | None:
        """Return the label of a stream; None beyond the limit."""
        with self._lock:
            if stream not in self._labels and len(self._labels) < self._most:
                self._labels.add(stream)
            return stream if stream in self._labels else None


class _Streams(Collector):
    """Collects the status of every stream at each scrape."""

    def __init__(
        self,
        streams: Callable[[], Sequence[StreamStatus]],
        label: Callable[[str], str | None],
        damaged: Callable[[], int],
    ) -> None:
        self._streams = streams
        self._label = label
        self._damaged = damaged

    def describe(self) -> list[Metric]:
        """Return nothing, so that the registry does not query the streams when it is created."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every metric of the streams."""
        found = [(self._label(status.name), status) for status in self._streams()]
        known = [(label, status) for label, status in found if label is not None]
        yield GaugeMetricFamily("ctta_streams", "Streams of the service.", value=len(found))
        yield GaugeMetricFamily("ctta_damaged_streams", "Streams on disk that cannot be read.", value=self._damaged())
        for name, text, count_of in _COUNTERS:
            counter = CounterMetricFamily(name, text, labels=["stream"])
            for label, status in known:
                counter.add_metric([label], count_of(status))
            yield counter
        for name, text, value_of in _GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=["stream"])
            for label, status in known:
                value = value_of(status)
                if value is not None:
                    gauge.add_metric([label], value)
            yield gauge
        yield _one_of("ctta_guard_phase", "phase", "1 for the phase of the guard.", _PHASES, known, lambda s: s.guard)
        yield _one_of("ctta_mode", "mode", "1 for the mode of the stream.", MODES, known, lambda s: s.mode)


def _one_of(
    name: str,
    label: str,
    text: str,
    choices: Sequence[str],
    streams: Sequence[tuple[str, StreamStatus]],
    of: Callable[[StreamStatus], str],
) -> Metric:
    gauge = GaugeMetricFamily(name, text, labels=["stream", label])
    for stream, status in streams:
        for choice in choices:
            gauge.add_metric([stream, choice], float(of(status) == choice))
    return gauge
