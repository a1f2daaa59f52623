"""Open a stream: its lane with the history, the audit and the remembered requests that are on disk."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ctta.errors import BadData
from ctta.serve.audit import Audit, read_stream, requests_of
from ctta.serve.events import Events
from ctta.serve.folders import Folders
from ctta.serve.history import History
from ctta.serve.index import Kind
from ctta.serve.labels import Requests
from ctta.serve.lane import Lane
from ctta.serve.learner import Learner
from ctta.serve.types import Limits, Mode
from ctta.serve.writer import Writer

logger = logging.getLogger("ctta")


def open_lane(
    name: str,
    make: Callable[[], Learner],
    *,
    folders: Folders,
    kind: Kind,
    writer: Writer,
    limits: Limits,
    classes: int,
    mode: Mode,
    events: Events | None,
    clock: Callable[[], float],
) -> Lane:
    """Open the lane of a stream, and create its folder if the stream is new.

    Args:
        name: The stream's name.
        make: Builds a new learner.
        folders: The folders of the service's streams.
        kind: The method and source of its adapter.
        writer: The thread that writes snapshots.
        limits: How the stream batches, learns and saves.
        classes: The number of classes.
        mode: The mode in which a new stream starts.
        events: The subscribers of the lane that this one replaces; None starts without any.
        clock: A monotonic clock in seconds, for latency and idle time.
    """
    folder = folders.of(name)
    folder.mkdir(parents=True, exist_ok=True)
    history = History(name, kind, folder, writer, limits.keep)
    newest = history.newest()
    saved = 0 if newest is None else int(newest.info.name)
    most_bytes = None if limits.audit is None else round(limits.audit * 1e6)
    audit = Audit(folder, folders.record_of(name), most_bytes, after=saved)
    requests = Requests(limits.remembered, classes)
    try:
        known = requests_of(read_stream(folder), saved, limits.remembered) if newest is not None else []
    except BadData as error:  # such as a line of a newer version
        logger.warning("stream %s does not remember its earlier requests: %s", name, error)
        known = []
    for request in known:
        requests.remember(request, None, offered=True)
    return Lane(
        name,
        make,
        limits=limits,
        history=history,
        audit=audit,
        requests=requests,
        mode=mode,
        events=events,
        clock=clock,
    )
