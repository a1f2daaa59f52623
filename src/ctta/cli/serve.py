"""ctta serve: serve a classifier that keeps learning, over HTTP and gRPC."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ctta.cli import options, served
from ctta.cli.names import check_names
from ctta.cli.options import parse_duration, parse_targets
from ctta.errors import BadData, ParameterError

if TYPE_CHECKING:
    import socket

    from ctta.serve.front import Front

_DIGITS = "digits_resnet8"
_LONGEST_WAIT = 10.0
_PIXELS = 1 << 24


def serve(
    method: served.Method = None,
    model: served.Served = None,
    weights: options.Weights = None,
    state: Annotated[
        Path | None, typer.Option(help="Folder for snapshots and the audit; a restarted service resumes from there.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the model in requests.", show_default="the model's own")
    ] = None,
    class_names: Annotated[
        Path | None, typer.Option(help="Text file with the names of the classes, one per line, in order.")
    ] = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen for HTTP.")] = "127.0.0.1:8000",
    grpc: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="PORT", help="Listen for gRPC too, on the same host.")
    ] = None,
    mode: Annotated[
        served.StreamMode,
        typer.Option(
            help="Mode of new streams: adapt; frozen, which does not learn; or shadow, which predicts without learning "
            "while a challenger learns."
        ),
    ] = served.StreamMode.adapt,
    batch: Annotated[int, typer.Option(min=1, help="Maximum images in one batch of a stream.")] = 64,
    wait: Annotated[str, typer.Option(help="How long a request waits at most for others to share its batch.")] = "20ms",
    queue: Annotated[int, typer.Option(min=1, help="Maximum images that may wait in one stream.")] = 512,
    streams: Annotated[int, typer.Option(min=1, help="Maximum number of streams.")] = 32,
    images: Annotated[int, typer.Option(min=1, help="Maximum images in one request.")] = 256,
    pixels: Annotated[
        int, typer.Option(min=1, help="Maximum values in one request: images x channels x pixels.")
    ] = _PIXELS,
    save_every: Annotated[int, typer.Option(min=1, help="Learnt batches between two snapshots of a stream.")] = 50,
    keep: Annotated[int, typer.Option(min=1, help="Snapshots kept per stream, besides pinned ones.")] = 10,
    audit: Annotated[
        float,
        typer.Option(min=1, metavar="MEGABYTES", help="Size above which a stream's oldest audit lines are deleted."),
    ] = 256,
    idle: Annotated[
        str, typer.Option(help="Move a stream to disk after this long without a request; off disables this.")
    ] = "10m",
    guard: served.Guard = None,
    learn_share: Annotated[
        float,
        typer.Option(help="Learn from at least this share of the batches, however busy it is; above 0, at most 1."),
    ] = 0.25,
    record: Annotated[
        Path | None, typer.Option(help="Keep the images of every learnt batch in this folder, for ctta replay.")
    ] = None,
    track: options.Track = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with a right (ask, teach or admin) and a token on every line."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond this machine without a token file.")
    ] = False,
    device: options.Device = None,
    threads: Annotated[int, typer.Option(min=1, help="Torch threads per stream.")] = 1,
    recipe: served.Recipe = None,
    setting: served.Setting = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve the built-in digits model to a built-in client whose images drift.")
    ] = False,
) -> None:
    """Serve a classifier over the Open Inference Protocol. It replies first and learns from the images afterwards.

    The live page is at the address it listens on. On SIGTERM or Ctrl-C it answers accepted requests, saves, and exits.
    """
    if demo and (model or weights or class_names or token_file or recipe):
        raise ParameterError(
            "--demo has its own model, client and settings. Leave out --model, --weights, --class-names, --token-file "
            "and --recipe."
        )
    if not demo and (model is None or state is None):
        raise ParameterError("ctta serve needs --model and --state, or --demo, which needs nothing.")
    host, port = parse_address(listen)
    check_names([] if method is None else [method], model)
    targets = parse_targets(track)
    seconds = parse_duration(wait, "--wait")
    if seconds > _LONGEST_WAIT:
        raise ParameterError(f"--wait is time that a client waits: at most {_LONGEST_WAIT:g}s. Got {wait}.")
    idle_seconds = None if idle == "off" else parse_duration(idle, "--idle")
    from ctta.serve.origin import is_loopback  # noqa: PLC0415 - help and usage errors must not import torch

    if token_file is None and not insecure and not is_loopback(host):
        raise ParameterError(
            f"Everybody who reaches {host} could change the model. Give a --token-file, listen on 127.0.0.1, or say "
            "--insecure."
        )
    import torch  # noqa: PLC0415

    from ctta.serve.checks import count_classes  # noqa: PLC0415
    from ctta.serve.front import Front  # noqa: PLC0415
    from ctta.serve.server import bind  # noqa: PLC0415
    from ctta.serve.service import Service  # noqa: PLC0415
    from ctta.serve.tokens import Tokens, read_tokens  # noqa: PLC0415
    from ctta.serve.types import Limits  # noqa: PLC0415

    torch.set_num_threads(threads)
    _log_to_stderr()
    rules = served.parse_guard(guard)
    tokens = Tokens() if token_file is None else read_tokens(token_file)
    source = served.load_source(
        method or ("dmse" if demo else None),
        model or _DIGITS,
        weights,
        setting or [],
        device,
        recipe="digits" if demo else recipe,
    )
    names = tuple("0123456789") if demo else read_names(class_names, count_classes(source.classifier))
    limits = Limits(
        batch=batch,
        wait=seconds,
        queue=queue,
        streams=streams,
        save_every=save_every,
        keep=keep,
        images=images,
        pixels=pixels,
        learn_share=learn_share,
        idle=idle_seconds,
        audit=audit,
    )
    with contextlib.closing(bind(host, port)) as listening:
        service = Service(
            source.classifier,
            source.make,
            name=name or ("digits" if demo else source.name),
            state=state,
            limits=limits,
            mode=mode.value,
            guard=rules,
            class_names=names,
            record=record,
            track=targets,
        )
        try:
            hosts = frozenset() if insecure else frozenset({host})
            run(Front(service, source.classifier, tokens), listening, host=host, hosts=hosts, grpc=grpc, demo=demo)
        finally:
            service.close()


def run(
    front: Front, listening: socket.socket, *, host: str, hosts: frozenset[str], grpc: int | None, demo: bool
) -> None:
    """Serve until a signal ends the process.

    Args:
        front: The service.
        listening: The bound socket.
        host: The host that it is bound to.
        hosts: Names under which the server is reached; see `HttpFront`.
        grpc: The gRPC port, if any.
        demo: Whether to start the built-in client.
    """
    from ctta.serve.http import HttpFront  # noqa: PLC0415
    from ctta.serve.server import Server  # noqa: PLC0415

    port = listening.getsockname()[1]
    with contextlib.ExitStack() as beside:
        if grpc is not None:
            from ctta.serve.grpc import GrpcServer  # noqa: PLC0415 - of another extra

            server = GrpcServer(front, _address(host, grpc))
            typer.echo(f"gRPC at {_address(host, server.start())}", err=True)
            beside.callback(server.stop)
        if demo:
            beside.enter_context(_drifting_client(host, port))
        app = HttpFront(front, hosts=hosts, on_stop=beside.close)
        typer.echo(f"serving {front.model.name} at http://{_address(host, port)}", err=True)
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again after everything is saved
            Server(app).run(sockets=[listening])


def _log_to_stderr() -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("ctta").setLevel(logging.INFO)


@contextlib.contextmanager
def _drifting_client(host: str, port: int) -> Iterator[None]:
    from ctta.serve.demo import DriftingClient  # noqa: PLC0415

    client = DriftingClient(host, port)
    client.start()
    try:
        yield
    finally:
        client.stop()


def parse_address(text: str) -> tuple[str, int]:
    """Parse the value of --listen.

    Args:
        text: HOST:PORT, with an IPv6 address in brackets.
    """
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not bare or (":" in bare and bare == host) or not port.isascii() or not port.isdigit():
        raise ParameterError(f"--listen takes HOST:PORT, such as 127.0.0.1:8000 or [::1]:8000. Got {text!r}.")
    if int(port) > 65535:
        raise ParameterError(f"A port is a number from 0 to 65535. Got {port}.")
    return bare, int(port)


def read_names(file: Path | None, classes: int) -> tuple[str, ...] | None:
    """Read the names of the classes.

    Args:
        file: A text file with one name per line, if there is one.
        classes: How many there must be.

    Raises:
        BadData: If the file is not UTF-8 text, or does not have so many names.
    """
    if file is None:
        return None
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadData(f"The file of class names {file} is not UTF-8 text. Save it as UTF-8.") from None
    names = tuple(line.strip() for line in text.splitlines() if line.strip())
    if len(names) != classes:
        raise BadData(f"{file} must have a line for each of the model's {classes} classes; it has {len(names)}.")
    return names


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
