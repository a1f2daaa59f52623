"""Download a file completely or not at all: resume by byte ranges, verify, then rename."""

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

from ctta._system.files import foreign, size
from ctta.errors import BadData, MissingData
from ctta.fetch.verify import verify

Progress = Callable[[int, int | None], None]  # bytes downloaded so far, total if known
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
    """Download a file. A partial download in `target`.part is resumed; the digest is checked in any case.

    Args:
        url: Where it is published.
        target: Where to put it.
        md5: Its MD5 digest, if published.
        sha256: Its SHA-256 digest, if published.
        progress: Called with the number of bytes downloaded so far and the total, if known.
        wait: Waits for a number of seconds between attempts.

    Raises:
        MissingData: If the host does not have the file, or after several attempts without progress.
        BadData: If the download is not the published file, or the disk is full.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    failures, best = 0, _length(part)
    while True:
        try:
            complete = _attempt(url, part, progress)
        except (http.client.HTTPException, urllib.error.URLError, TimeoutError, ConnectionError) as error:
            complete, reason = False, _reason(error)
        else:
            reason = "the connection ended early"
        if complete:
            break
        # Compare with the best so far: a host that ignores ranges starts from zero every time.
        failures, best = (0, _length(part)) if _length(part) > best else (failures + 1, best)
        if failures == ATTEMPTS:
            raise MissingData(
                f"{url} could not be downloaded: {reason}. {size(_length(part))} were saved: "
                f"run the command again to resume, or download it by hand to {target.absolute()}."
            )
        wait(min(2.0**failures, 30.0))
    try:
        verify(part, md5=md5, sha256=sha256, called=target.name)
    except BadData:
        part.unlink()
        raise
    part.replace(target)
    return target


def _attempt(url: str, part: Path, progress: Progress | None) -> bool:
    """Append what the host sends to `part`, and return whether the file is complete."""
    begin = _length(part)
    request = urllib.request.Request(url, headers={"User-Agent": "ctta", "Accept-Encoding": "identity"})
    if begin:
        request.add_header("Range", f"bytes={begin}-")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            if response.status == http.HTTPStatus.PARTIAL_CONTENT and not _continues(response, begin):
                part.unlink()  # not the range we asked for: start again
                return False
            if response.status != http.HTTPStatus.PARTIAL_CONTENT:
                begin = 0
            length = response.headers.get("Content-Length", "")
            total = begin + int(length) if length.isdecimal() else None
            if whole := re.fullmatch(r"bytes \d+-\d+/(\d+)", response.headers.get("Content-Range", "")):
                total = int(whole[1])  # a host may send less than the range we asked for
            start = response.read(_START)
            _refuse_page(response, start if begin == 0 else b"", url)
            _check_disk_space(part, begin, total)
            with part.open("ab" if begin else "wb") as file:
                file.write(start)
                _copy(response, file, begin + len(start), total, progress)
            return total is None or _length(part) == total
    except urllib.error.HTTPError as error:
        return _handle_status(error, url, part)


def _copy(
    response: http.client.HTTPResponse, file: BinaryIO, done: int, total: int | None, progress: Progress | None
) -> None:
    while piece := response.read(_PIECE):
        file.write(piece)
        done += len(piece)
        if progress is not None:
            progress(done, total)
    file.flush()
    os.fsync(file.fileno())


def _handle_status(error: urllib.error.HTTPError, url: str, part: Path) -> bool:
    """Return whether the file is complete after an HTTP error, or raise."""
    with error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            total = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", ""))
            if total and int(total[1]) == _length(part):
                return True
            part.unlink(missing_ok=True)
            return False
        if error.code >= http.HTTPStatus.INTERNAL_SERVER_ERROR or error.code == http.HTTPStatus.TOO_MANY_REQUESTS:
            raise ConnectionError(f"the host answered {error.code} {error.reason}") from error
        raise MissingData(f"{url} could not be downloaded: the host answered {error.code} {error.reason}.") from error


def _continues(response: http.client.HTTPResponse, begin: int) -> bool:
    sent = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return sent is not None and int(sent[1]) == begin


def _refuse_page(response: http.client.HTTPResponse, start: bytes, url: str) -> None:
    what = "an HTML page" if response.headers.get_content_type() == "text/html" else start and foreign(start)
    if what:
        raise BadData(f"{url} returned {what} instead of the file: the host may ask for a confirmation.")


def _check_disk_space(part: Path, begin: int, total: int | None) -> None:
    free = shutil.disk_usage(part.parent).free
    if total is not None and total - begin > free:
        raise BadData(f"{part.parent.absolute()} has {size(free)} free; the download needs {size(total - begin)}.")


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: BaseException) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return str(cause).rstrip(".") or type(cause).__name__
