"""Downloading a file so that it is whole or not there: resumed by ranges, verified, renamed at the end."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from ctta.errors import BadData, MissingData
from ctta.fetch.verify import verify
from ctta.files import foreign, size

Progress = Callable[[int, int | None], None]  # bytes there, bytes in all where known
ATTEMPTS = 5
TIMEOUT = 60.0
_START, _PIECE = 512, 1 << 18


def download(
    url: str,
    target: Path,
    *,
    md5: str | None = None,
    sha256: str | None = None,
    progress: Progress | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> Path:
    """Fetch a file; what an earlier attempt left in `target`.part is taken up, never trusted."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    fruitless, best = 0, _length(part)
    while True:
        try:
            whole = _attempt(url, part, progress)
        except (http.client.HTTPException, urllib.error.URLError, TimeoutError, ConnectionError) as error:
            whole, reason = False, _reason(error)
        else:
            reason = "the connection ended early"
        if whole:
            break
        # The best so far counts: a host that ignores ranges starts from nothing each time.
        fruitless, best = (0, _length(part)) if _length(part) > best else (fruitless + 1, best)
        if fruitless == ATTEMPTS:
            raise MissingData(
                f"{url} could not be fetched: {reason}; {size(_length(part))} are there. "
                f"Run the command again to go on, or download it by hand to {target.absolute()}."
            )
        wait(min(2.0**fruitless, 30.0))
    try:
        verify(part, md5=md5, sha256=sha256, called=target.name)
    except BadData:
        part.unlink()
        raise
    part.replace(target)
    return target


def _attempt(url: str, part: Path, progress: Progress | None) -> bool:
    """Take what the host gives into `part`; whether that is all of it."""
    begin = _length(part)
    request = urllib.request.Request(url, headers={"User-Agent": "ctta", "Accept-Encoding": "identity"})
    if begin:
        request.add_header("Range", f"bytes={begin}-")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            if answer.status == http.HTTPStatus.PARTIAL_CONTENT and not _continues(answer, begin):
                part.unlink()  # another piece than we asked for: start again
                return False
            if answer.status != http.HTTPStatus.PARTIAL_CONTENT:
                begin = 0
            length = answer.headers.get("Content-Length", "")
            total = begin + int(length) if length.isdecimal() else None
            if whole := re.fullmatch(r"bytes \d+-\d+/(\d+)", answer.headers.get("Content-Range", "")):
                total = int(whole[1])  # a host may give a shorter piece than was asked for
            start = answer.read(_START)
            _refuse_page(answer, start if begin == 0 else b"", url)
            _need_room(part, begin, total)
            with part.open("ab" if begin else "wb") as file:
                file.write(start)
                _copy(answer, file, begin + len(start), total, progress)
            return total is None or _length(part) == total
    except urllib.error.HTTPError as error:
        return _refused(error, url, part)


def _copy(
    answer: http.client.HTTPResponse, file: BinaryIO, done: int, total: int | None, progress: Progress | None
) -> None:
    while piece := answer.read(_PIECE):
        file.write(piece)
        done += len(piece)
        if progress is not None:
            progress(done, total)
    file.flush()
    os.fsync(file.fileno())


def _refused(error: urllib.error.HTTPError, url: str, part: Path) -> bool:
    with error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            total = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", ""))
            if total and int(total[1]) == _length(part):
                return True
            part.unlink(missing_ok=True)
            return False
        if error.code >= http.HTTPStatus.INTERNAL_SERVER_ERROR or error.code == http.HTTPStatus.TOO_MANY_REQUESTS:
            raise ConnectionError(f"the host answered {error.code} {error.reason}") from error
        raise MissingData(f"{url} is not there: the host answered {error.code} {error.reason}.") from error


def _continues(answer: http.client.HTTPResponse, begin: int) -> bool:
    place = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
    return place is not None and int(place[1]) == begin


def _refuse_page(answer: http.client.HTTPResponse, start: bytes, url: str) -> None:
    what = "an HTML page" if answer.headers.get_content_type() == "text/html" else start and foreign(start)
    if what:
        raise BadData(f"{url} answered with {what}, not with the file: the host may ask for a confirmation.")


def _need_room(part: Path, begin: int, total: int | None) -> None:
    free = shutil.disk_usage(part.parent).free
    if total is not None and total - begin > free:
        raise BadData(f"{part.parent.absolute()} has {size(free)} free and needs {size(total - begin)}.")


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: BaseException) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return str(cause).rstrip(".") or type(cause).__name__
