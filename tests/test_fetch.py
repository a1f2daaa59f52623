"""Fetching from a local host that drops connections, sends wrong data and refuses; no other host is contacted."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ctta import fetch as fetching
from ctta.datasets.manifest import write_manifest
from ctta.errors import BadData, MissingData
from ctta.fetch import catalogue, download
from ctta.fetch.catalogue import Archive
from ctta.fetch.unpack import unpack

CONTENT = bytes(range(256)) * 4000  # about 1 MB
MD5 = hashlib.md5(CONTENT).hexdigest()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Host(BaseHTTPRequestHandler):
    """A server whose behaviour is chosen by the first part of the path."""

    def do_GET(self):
        server = self.server
        server.asked.append(self.headers.get("Range"))
        getattr(self, self.path.split("/")[1])(server.content)

    def log_message(self, *_):
        pass

    def begin(self):
        given = self.headers.get("Range")
        return int(given.removeprefix("bytes=").rstrip("-")) if given else 0

    def answer(self, status, body, length=None, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def partial(self, content, send=None, begin=None):
        begin = self.begin() if begin is None else begin
        if begin >= len(content):
            return self.answer(416, b"", Content_Range=f"bytes */{len(content)}")
        body = content[begin:]
        place = f"bytes {begin}-{len(content) - 1}/{len(content)}"
        status, extra = (206, {"Content_Range": place}) if self.headers.get("Range") else (200, {})
        return self.answer(status, body[:send], len(body), **extra)

    def good(self, content):
        self.partial(content)

    def drops(self, content):
        self.partial(content, send=300_000)

    def ignores(self, content):
        self.answer(200, content)

    def ignores_and_drops(self, content):
        self.answer(200, content[:400_000], len(content))

    def elsewhere(self, content):
        self.partial(content, begin=5 if self.headers.get("Range") else 0)

    def html(self, content):
        self.answer(200, b"<!DOCTYPE html><html>confirm</html>", Content_Type="text/html; charset=utf-8")

    def hidden_html(self, content):
        self.answer(200, b"  <html>confirm</html>", Content_Type="application/octet-stream")

    def promises_more(self, content):
        begin = self.begin()
        place = {"Content_Range": f"bytes {begin}-{len(content) + 99}/{len(content) + 100}"} if begin else {}
        self.answer(206 if begin else 200, content[begin:], len(content) + 100 - begin, **place)

    def promises_less(self, content):
        self.answer(200, content[:1000])

    def without_length(self, content):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = True

    def busy_at_first(self, content):
        if len(self.server.asked) < 3:
            self.answer(503, b"later")
        else:
            self.partial(content)

    def redirect(self, content):
        self.answer(302, b"", Location="/good/file")

    def missing(self, content):
        self.answer(404, b"<html>not found</html>")

    def forbidden(self, content):
        self.answer(403, b"no")


@pytest.fixture
def host() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Host)
    server.asked, server.content = [], CONTENT
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def get(host, tmp_path):
    def run(way: str, **options):
        options = {"md5": MD5, "sha256": SHA256, "wait": lambda _: None} | options
        return download(f"http://127.0.0.1:{host.server_port}/{way}/file", tmp_path / "new" / "file", **options)

    return run


def part(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "new" / "file.part"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "way", ["good", "drops", "ignores", "without_length", "busy_at_first", "redirect", "elsewhere"]
)
def test_a_file_arrives_whole(get, tmp_path, way):
    seen = []
    path = get(way, progress=lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert seen[-1][0] == len(CONTENT)
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_dropped_connection_goes_on_where_it_was(get, host):
    get("drops")
    assert host.asked == [None, *(f"bytes={n}-" for n in (300_000, 600_000, 900_000))]


@pytest.mark.parametrize("way", ["good", "ignores", "elsewhere", "redirect"])
def test_an_earlier_attempt_is_taken_up(get, host, tmp_path, way):
    part(tmp_path, CONTENT[:1000])
    assert get(way).read_bytes() == CONTENT
    assert host.asked[0] == "bytes=1000-"


def test_a_finished_part_needs_no_more_bytes(get, host, tmp_path):
    part(tmp_path, CONTENT)
    assert get("good").read_bytes() == CONTENT
    assert host.asked == [f"bytes={len(CONTENT)}-"]


def test_a_part_that_is_too_long_is_thrown_away(get, tmp_path):
    part(tmp_path, CONTENT + b"surplus")
    assert get("good").read_bytes() == CONTENT


def test_a_part_of_another_file_is_found_out_and_removed(get, tmp_path):
    left = part(tmp_path, b"x" * 1000)
    with pytest.raises(BadData, match="file is not the published file: sha256"):
        get("good")
    assert not left.exists()
    assert get("good").read_bytes() == CONTENT


def test_a_host_that_never_finishes_gives_up_and_keeps_what_is_there(get, host, tmp_path):
    waits = []
    with pytest.raises(MissingData, match=r"400\.0 kB were saved: run the command again.*by hand to .*new/file"):
        get("ignores_and_drops", wait=waits.append)
    assert len(host.asked) == 6
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert (tmp_path / "new" / "file.part").stat().st_size == 400_000
    assert get("good").read_bytes() == CONTENT


@pytest.mark.parametrize("way", ["html", "hidden_html"])
def test_a_page_is_never_saved_as_data(get, tmp_path, way):
    left = part(tmp_path, CONTENT[:1000])
    with pytest.raises(BadData, match="returned an HTML page"):
        get(way)
    assert left.read_bytes() == CONTENT[:1000]
    assert not (tmp_path / "new" / "file").exists()


def test_a_promise_of_more_than_there_is_ends_in_an_error(get, tmp_path):
    with pytest.raises(MissingData, match="could not be downloaded"):
        get("promises_more")
    assert not (tmp_path / "new" / "file").exists()


def test_less_than_there_should_be_fails_its_digest(get, tmp_path):
    with pytest.raises(BadData, match=r"not the published file.*\(1\.0 kB\)"):
        get("promises_less")
    assert not list((tmp_path / "new").iterdir())


@pytest.mark.parametrize(("way", "code"), [("missing", 404), ("forbidden", 403)])
def test_a_refusal_is_not_repeated(get, host, way, code):
    with pytest.raises(MissingData, match=f"the host answered {code}"):
        get(way)
    assert len(host.asked) == 1


def test_no_host_at_all_is_said(tmp_path, host):
    port = host.server_port
    host.server_close()
    with pytest.raises(MissingData, match=r"could not be downloaded: .*refused"):
        download(f"http://127.0.0.1:{port}/good/file", tmp_path / "file", wait=lambda _: None)


def test_too_little_room_is_said_before_anything_is_written(get, tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 10_000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(BadData, match=r"has 10\.0 kB free; the download needs 1\.0 MB"):
        get("good")


def packed(*members: tuple[str, bytes], link: tuple[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        if link:
            info = tarfile.TarInfo(link[0])
            info.type, info.linkname = tarfile.SYMTYPE, link[1]
            tar.addfile(info)
    return buffer.getvalue()


@pytest.fixture
def published(host, monkeypatch) -> Archive:
    """An archive like CIFAR-10-C's, published by the local host."""
    files = {"labels.npy": b"labels", "fog.npy": b"fog" * 99}
    host.content = packed(*((f"SMALL-C/{name}", content) for name, content in files.items()))
    archive = Archive(
        "small-c",
        f"http://127.0.0.1:{host.server_port}/good/small-c.tar",
        "small-c.tar",
        len(host.content),
        hashlib.md5(host.content).hexdigest(),
        inside=("SMALL-C",),
        digests=tuple((name, hashlib.md5(content).hexdigest()) for name, content in files.items()),
    )
    monkeypatch.setitem(catalogue.ARCHIVES, "small-c", archive)
    return archive


def test_fetch_downloads_verifies_and_unpacks(published, tmp_path):
    (folder,) = fetching.fetch("small-c", tmp_path)
    assert folder == tmp_path / "SMALL-C"
    assert (folder / "fog.npy").read_bytes() == b"fog" * 99
    assert sorted(path.name for path in tmp_path.iterdir()) == ["SMALL-C", "small-c.tar"]


def test_what_is_there_is_verified_and_not_fetched_again(published, host, tmp_path):
    fetching.fetch("small-c", tmp_path)
    asked = len(host.asked)
    (tmp_path / "small-c.tar").unlink()
    assert fetching.fetch("small-c", tmp_path) == [tmp_path / "SMALL-C"]
    assert len(host.asked) == asked
    (tmp_path / "SMALL-C" / "fog.npy").write_bytes(b"other")
    with pytest.raises(BadData, match=r"fog\.npy is not the published file"):
        fetching.fetch("small-c", tmp_path)


def test_an_archive_that_is_there_is_unpacked_without_the_network(published, host, tmp_path):
    (tmp_path / "small-c.tar").write_bytes(host.content)
    assert fetching.fetch("small-c", tmp_path) == [tmp_path / "SMALL-C"]
    assert fetching.fetch("small-c", tmp_path, keep_packed=True) == [tmp_path / "small-c.tar"]
    assert host.asked == []


def test_a_wrong_archive_that_is_there_is_named_and_left_alone(published, tmp_path):
    (tmp_path / "small-c.tar").write_bytes(b"something")
    with pytest.raises(BadData, match=r"small-c\.tar is not the published file: md5"):
        fetching.fetch("small-c", tmp_path)
    assert (tmp_path / "small-c.tar").read_bytes() == b"something"


def test_check_looks_at_the_archive_or_the_folder(published, host, tmp_path):
    with pytest.raises(MissingData, match="ctta fetch small-c --to DIR"):
        fetching.check("small-c", tmp_path / "nowhere")
    fetching.fetch("small-c", tmp_path)
    assert "as published" in fetching.check("small-c", tmp_path / "small-c.tar")[0]
    assert "2 files" in fetching.check("small-c", tmp_path / "SMALL-C")[0]
    (tmp_path / "small-c.tar").unlink()
    assert "2 files" in fetching.check("small-c", tmp_path)[0]
    (tmp_path / "SMALL-C" / "fog.npy").unlink()
    with pytest.raises(MissingData, match=r"fog\.npy is not in"):
        fetching.check("small-c", tmp_path)


def test_generated_data_do_not_check_as_published(published, tmp_path):
    fetching.fetch("small-c", tmp_path)
    write_manifest(tmp_path / "SMALL-C", {})
    with pytest.raises(BadData, match="made by ctta corrupt"):
        fetching.check("small-c", tmp_path / "SMALL-C")


def test_the_plan_says_everything_needed_to_do_it_by_hand(published, tmp_path):
    (plan,) = fetching.plan("small-c", tmp_path)
    assert plan["source"] == published.url
    assert (plan["size"], plan["md5"], plan["sha256"]) == (published.size, published.md5, None)
    assert plan["target"] == str(tmp_path / "small-c.tar")
    assert published.url in plan["by_hand"]
    assert f"tar -xf small-c.tar -C {tmp_path}" in plan["by_hand"]


def test_imagenet_c_stands_for_the_archives_of_the_fifteen_corruptions(tmp_path):
    names = [plan["name"] for plan in fetching.plan("imagenet-c", tmp_path)]
    assert names == ["imagenet-c-noise", "imagenet-c-blur", "imagenet-c-weather", "imagenet-c-digital"]


def test_an_unknown_name_suggests_the_nearest(tmp_path):
    with pytest.raises(fetching.UnknownData, match="Did you mean 'cifar10-c'"):
        fetching.plan("cifar-10-c", tmp_path)


@pytest.mark.parametrize(
    ("name", "link"),
    [("../outside.txt", None), ("/absolute.txt", None), ("fine.txt", ("link", "../outside.txt"))],
)
def test_nothing_is_unpacked_outside_the_folder(tmp_path, name, link):
    (tmp_path / "bad.tar").write_bytes(packed((name, b"x"), link=link))
    try:
        unpack(tmp_path / "bad.tar", tmp_path / "data" / "deep")
    except BadData as error:
        assert "cannot be unpacked" in str(error)
    assert not (tmp_path / "data" / "outside.txt").exists()
    assert not Path("/absolute.txt").exists()
    assert not (tmp_path / "data" / "deep" / "link").is_symlink()


def test_a_broken_archive_leaves_nothing(tmp_path):
    whole = packed(("A/one", b"1" * 5000), ("A/two", b"2" * 5000))
    (tmp_path / "cut.tar").write_bytes(whole[:7000])
    with pytest.raises(BadData, match=r"cut\.tar cannot be unpacked"):
        unpack(tmp_path / "cut.tar", tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_unpacking_overwrites_nothing(tmp_path):
    (tmp_path / "a.tar").write_bytes(packed(("A/one", b"new")))
    (tmp_path / "A").mkdir()
    (tmp_path / "A" / "mine").write_text("mine")
    with pytest.raises(BadData, match="A already exists"):
        unpack(tmp_path / "a.tar", tmp_path)
    assert [path.name for path in (tmp_path / "A").iterdir()] == ["mine"]


def test_no_other_code_opens_addresses():
    source = Path(fetching.__file__).parents[1]
    users = {
        path.relative_to(source).parts[0]
        for path in source.rglob("*.py")
        if any(word in path.read_text(encoding="utf-8") for word in ("urllib.request", "import requests", "urlopen"))
    }
    assert users == {"fetch"}
