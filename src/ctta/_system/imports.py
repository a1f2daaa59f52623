"""Import code that the user named, as ``package.module:name`` or ``file.py:name``.

The code may do anything: print, raise, or exit. What it prints goes to stderr, so that stdout holds only results. Every
failure becomes a UserCodeError that says what the code did and where.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from types import ModuleType

from ctta._system.targets import split_target
from ctta.errors import CttaError, UserCodeError

_Stamp = tuple[int, int]
_from_files: dict[Path, tuple[_Stamp, ModuleType]] = {}


def load_object(target: str) -> object:
    """Import a module or Python file and return an object from it.

    Args:
        target: ``package.module:name`` or ``path/to/file.py:name``; the name may have dots. The current folder is
            searched first.

    Raises:
        UserCodeError: If the module or the name does not exist, or the code fails while it is imported.
    """
    origin, name = split_target(target)
    if not name:
        raise UserCodeError(f"{target!r} names no object. Write {origin or 'module'}:name.")
    return find_name(load_module(origin), name, origin)


def find_name(module: ModuleType, name: str, origin: str) -> object:
    """Return the object that a dotted name refers to in a module.

    Args:
        module: The module.
        name: The name of the object.
        origin: What to call the module in messages.

    Raises:
        UserCodeError: If there is no such object.
    """
    found: object = module
    for part in name.split("."):
        with user_code(f"Reading {name!r} of {origin}"):
            if not hasattr(found, part):
                known = ", ".join(public_names(module)) or "nothing"
                raise UserCodeError(f"{origin} has no {name!r}. It has: {known[:200]}.")
            found = getattr(found, part)
    return found


def public_names(module: ModuleType) -> list[str]:
    """List the names of a module that do not start with an underscore.

    Args:
        module: The module.
    """
    return [name for name in dir(module) if not name.startswith("_")]


def load_module(origin: str) -> ModuleType:
    """Import a module by its name, or a Python file by its path. An unchanged file is run only once.

    Args:
        origin: ``package.module`` or a path that ends in ``.py``.

    Raises:
        UserCodeError: If there is no such module or file, or it fails while it is imported.
    """
    if not origin:
        raise UserCodeError("No module or file is named. Write package.module:name or path/to/file.py:name.")
    if origin.endswith(".py"):
        return _load_file(Path(origin))
    with user_code(f"Importing {origin}"), first_on_path(Path.cwd()):
        try:
            return importlib.import_module(origin)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{origin}.".startswith(f"{error.name}."):
                raise
            raise UserCodeError(
                f"There is no module {origin!r} in {Path.cwd()} or among the installed packages."
            ) from error


@contextmanager
def user_code(doing: str) -> Iterator[None]:
    """Context in which the user's code runs: stdout goes to stderr, and failures are raised as UserCodeError.

    ``sys.exit`` is a failure too, with any code. Ctrl-C and the errors of ctta are not caught.

    Args:
        doing: What is being done, as the beginning of a sentence: "Importing mine.py".
    """
    try:
        with stdout_to_stderr(), no_exit(doing):
            yield
    except CttaError:
        raise
    except Exception as error:
        raise _failure(doing, error) from error


def is_own(code: object) -> bool:
    """Whether a class or function belongs to ctta, whose failures are not the user's.

    Args:
        code: The class or function.
    """
    return str(getattr(code, "__module__", "")).partition(".")[0] == "ctta"


@contextmanager
def no_exit(doing: str) -> Iterator[None]:
    """Context in which the user's code cannot end the process: ``sys.exit`` is raised as UserCodeError.

    So is everything else that is neither an Exception nor Ctrl-C. Exceptions pass.

    Args:
        doing: What is being done, as the beginning of a sentence.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except SystemExit as error:
        raise exit_error(doing, error) from error
    except BaseException as error:
        raise _failure(doing, error) from error


def exit_error(doing: str, error: SystemExit) -> UserCodeError:
    """Name the place in the user's code that called ``sys.exit``.

    Args:
        doing: What was being done, as the beginning of a sentence.
        error: What the call raised.
    """
    return UserCodeError(
        f"{doing} called sys.exit({error.code!r}){_location(error)}. "
        "Remove that call, or put it under if __name__ == '__main__'."
    )


def _failure(doing: str, error: BaseException) -> UserCodeError:
    return UserCodeError(f"{doing} raised {type(error).__name__}: {message_of(error)}{_location(error)}.")


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Context in which everything that is printed goes to stderr, including output of C code and child processes."""
    real = sys.__stdout__
    try:
        _flush()
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # no such streams, as in a service
        with redirect_stdout(sys.stderr):
            yield
        return
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _flush()
        if real is not None and not real.closed:
            with suppress(OSError, ValueError):
                real.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _flush() -> None:
    if sys.stdout is not None:
        with suppress(OSError, ValueError):
            sys.stdout.flush()


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserCodeError(f"There is no Python file at {path.absolute()}.")
    path = path.resolve()
    status = path.stat()
    stamp = (status.st_mtime_ns, status.st_size)
    known = _from_files.get(path)
    if known is not None and known[0] == stamp:
        return known[1]
    spec = importlib.util.spec_from_file_location(_module_name(path), path)
    assert spec is not None and spec.loader is not None, "a path that ends in .py has a loader"
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickle look a class's module up by name.
    sys.modules[spec.name] = module
    try:
        with user_code(f"Importing {path.name}"), first_on_path(path.parent):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(spec.name, None)
        raise
    _from_files[path] = (stamp, module)
    return module


def _module_name(path: Path) -> str:
    """Name the module of a file: its stem, unless that is no name or belongs to another module."""
    if path.stem.isidentifier() and not _is_taken(path):
        return path.stem
    return f"_ctta_user_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


def _is_taken(path: Path) -> bool:
    """Return whether a file's stem is the name of a module in use, or of one that could be imported from elsewhere."""
    if path.stem in sys.modules:
        return True
    spec = importlib.util.find_spec(path.stem)
    if spec is None:
        return False
    return not spec.has_location or Path(str(spec.origin)).resolve().parent != path.parent


@contextmanager
def first_on_path(folder: Path) -> Iterator[None]:
    """Search a folder first for imports, as Python does for a script's own folder.

    Args:
        folder: The folder.
    """
    entry = str(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(entry)


def message_of(error: BaseException) -> str:
    """Return the message of an error that the user's code raised.

    Args:
        error: The error. Its ``__str__`` may raise as well.
    """
    try:
        return str(error).rstrip(".") or "no message"
    except Exception:  # noqa: BLE001, a hostile __str__ must not hide the error it belongs to
        return "a message that cannot be printed"


def _location(error: BaseException) -> str:
    """Return the line of the user's code in which an error arose, outside this file and the import machinery."""
    if isinstance(error, SyntaxError):  # its message has the line
        return ""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and not frame.filename.startswith("<frozen")
    ]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
