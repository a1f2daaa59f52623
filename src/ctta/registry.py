"""Find methods, models, datasets and protocols by name: built in, from an installed plug-in, or from the user's file.

A package adds its own with an entry point in the group ``ctta.methods``, ``ctta.models``, ``ctta.datasets`` or
``ctta.protocols``. Its code is imported only if the name is used or listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ctta._system.imports import load_object, user_code
from ctta._system.targets import absolute_target, bare_target, is_target, target_origin
from ctta.errors import ParameterError, PluginError, UnknownMethod, UnknownName, UserCodeError
from ctta.method_table import MethodFacts, built_in

if TYPE_CHECKING:
    from ctta.adapter import Adapter

    Method = TypeVar("Method", bound=type[Adapter])

__all__ = [
    "BUILT_IN",
    "METHODS",
    "Entry",
    "Named",
    "NamedRegistry",
    "Registry",
    "absolute_target",
    "bare_target",
    "get_method",
    "is_target",
    "list_methods",
    "method",
    "methods",
    "register",
    "target_origin",
]

Value = TypeVar("Value")

BUILT_IN = "built in"


@dataclass(frozen=True)
class Entry(Generic[Value]):
    """An entry of a registry.

    Args:
        name: The name.
        origin: Where it comes from: "built in", a distribution with its version, or a file or module.
        load: Returns the value, importing it if needed.
    """

    name: str
    origin: str
    load: Callable[[], Value]


class Registry(Generic[Value]):
    """Values of one kind by name.

    Args:
        unknown: The error for an unknown name; its ``kind`` is what messages call the values.
        group: The entry points to offer, such as "ctta.methods".
        accept: Takes a loaded value and what messages should call it. Returns the value if it is of the right kind,
            and raises a CttaError otherwise.
    """

    def __init__(self, unknown: type[UnknownName], group: str, accept: Callable[[object, str], Value]) -> None:
        self.unknown = unknown
        self.group = group
        self._accept = accept
        self._own: dict[str, Entry[Value]] = {}
        self._plugins: dict[str, Entry[Value]] | None = None

    def add(self, name: str, load: Callable[[], Value], origin: str = BUILT_IN) -> None:
        """Add an entry, or replace the one of this name.

        Args:
            name: The name.
            load: Returns the value, importing it if needed.
            origin: Where it comes from.
        """
        self._own[name] = Entry(name, origin, load)

    def entries(self, *, plugins: bool = True) -> list[Entry[Value]]:
        """Return every entry, without loading any.

        Args:
            plugins: Whether to include those of installed plug-ins.
        """
        installed = self._installed() if plugins else {}
        return [*self._own.values(), *(entry for name, entry in installed.items() if name not in self._own)]

    def names(self) -> list[str]:
        """Return every name."""
        return [entry.name for entry in self.entries()]

    def find(self, name: str) -> Entry[Value] | None:
        """Return the entry of a name, or None.

        Args:
            name: The name, in upper or lower case.
        """
        for entries in (self._own, self._installed()):
            for spelling in (name, name.lower()):
                if spelling in entries:
                    return entries[spelling]
        return None

    def check(self, name: str) -> None:
        """Raise the error for an unknown name, without importing anything.

        Args:
            name: The name. ``module:name`` and ``file.py:name`` pass: whether they exist is known only after an import.
        """
        if not is_target(name) and self.find(name) is None:
            raise self.unknown(name, self.names())

    def get(self, name: str) -> Value:
        """Return the value of a name.

        Args:
            name: A name of the registry, or ``package.module:name`` or ``file.py:name`` for any other object.

        Raises:
            UnknownName: If the name is unknown. The message suggests the nearest one.
            PluginError: If it belongs to a plug-in that fails to import.
            UserCodeError: If the user's own code does not exist or fails to import.
        """
        self.check(name)
        entry = self.find(name)
        return entry.load() if entry is not None else self._accept(load_object(name), name)

    def _installed(self) -> dict[str, Entry[Value]]:
        if self._plugins is None:
            self._plugins = {}
            for point in entry_points(group=self.group):
                origin = _distribution(point)
                self._plugins.setdefault(point.name, Entry(point.name, origin, self._loader(point, origin)))
        return self._plugins

    def _loader(self, point: EntryPoint, origin: str) -> Callable[[], Value]:
        def load() -> Value:
            what = f"the {self.unknown.kind} {point.name!r} of {origin}"
            try:
                with user_code(f"Importing {what}"):
                    value = point.load()
            except UserCodeError as error:
                raise PluginError(str(error)) from error
            return self._accept(value, what)

        return load


class Named(Protocol):
    """A value that carries its own name."""

    @property
    def name(self) -> str:
        """The name on the command line and in records."""


NamedValue = TypeVar("NamedValue", bound=Named)


class NamedRegistry(Registry[NamedValue]):
    """A registry of values that carry their own name.

    Records identify such a value by its name, so no other value may take the name of a built-in one.

    Args:
        unknown: The error for an unknown name.
        kind: The class of the values.
        title: What messages call the class, such as "ctta.datasets.Dataset".
        built_in: The built-in values.

    Example:
        >>> from ctta.errors import UnknownProtocol
        >>> from ctta.protocol import Protocol
        >>> still = Protocol("still", build=print)
        >>> protocols = NamedRegistry(UnknownProtocol, Protocol, "ctta.protocol.Protocol", [still])
        >>> protocols.get("still") is still
        True
    """

    def __init__(
        self, unknown: type[UnknownName], kind: type[NamedValue], title: str, built_in: Iterable[NamedValue]
    ) -> None:
        word = kind.__name__.lower()
        super().__init__(unknown, f"ctta.{word}s", self._accept_named)
        self._kind = kind
        self._word = word
        self._title = title
        for value in built_in:
            self._add_value(value, BUILT_IN)
        self._taken = frozenset(self._own)

    def register(self, value: NamedValue, code: object = None) -> NamedValue:
        """Register a value under its name, in this process.

        Args:
            value: The value.
            code: The function behind the value, whose module is shown as its origin.

        Raises:
            ParameterError: If it is of another class, or has the name of a built-in value.
        """
        accepted = self._accept_named(value, f"The {self._word}")
        self._add_value(accepted, getattr(code, "__module__", None) or "registered")
        return accepted

    def get(self, name: str) -> NamedValue:
        """Return the value of a name; one from the user's own code is also registered under its own name.

        Args:
            name: See `Registry.get`.

        Raises:
            UnknownName: If the name is unknown. The message suggests the nearest one.
            PluginError: If it belongs to a plug-in that fails to import.
            UserCodeError: If the user's own code does not exist or fails to import.
        """
        value = super().get(name)
        if is_target(name):
            self._add_value(value, target_origin(name))
        return value

    def _add_value(self, value: NamedValue, origin: str) -> None:
        self.add(value.name, lambda: value, origin)

    def _accept_named(self, value: object, what: str) -> NamedValue:
        if not isinstance(value, self._kind):
            raise ParameterError(f"A {self._word} must be a {self._title}; {what} is {type(value).__name__}.")
        if value.name in self._taken:
            raise ParameterError(
                f"{what} has the name of the built-in {self._word} {value.name!r}. Choose another name."
            )
        return value


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value


def _accept_method(value: object, what: str) -> type[Adapter]:
    from ctta.adapter import Adapter  # noqa: PLC0415 - the names of methods are known without torch

    if isinstance(value, type) and issubclass(value, Adapter) and value is not Adapter:
        return value
    raise ParameterError(f"A method must be a subclass of ctta.Adapter; {what} is {value!r}.")


METHODS: Registry[type[Adapter]] = Registry(UnknownMethod, "ctta.methods", _accept_method)


def _load_built_in(facts: MethodFacts) -> Callable[[], type[Adapter]]:
    return lambda: _accept_method(getattr(import_module(facts.module), facts.class_name), facts.home)


for _facts in built_in().values():
    METHODS.add(_facts.name, _load_built_in(_facts))


def register(cls: Method) -> Method:
    """Class decorator: register a method under the lower-case name of its class.

    Args:
        cls: The method.
    """
    name = cls.__name__.lower()
    if name not in built_in() or not cls.__module__.startswith("ctta."):
        _refuse_taken(name, cls, cls.__module__)
        METHODS.add(name, lambda: cls, cls.__module__)
    return cls


def get_method(name: str) -> type[Adapter]:
    """Return the method of this name.

    Args:
        name: A name from `list_methods`, or the class as ``package.module:Class`` or ``file.py:Class``.

    Raises:
        UnknownMethod: If the name is unknown. The message suggests the nearest one.
        PluginError: If it belongs to a plug-in that fails to import.
        UserCodeError: If the user's own code does not exist or fails to import.

    Example:
        >>> get_method("dmse")
        <class 'ctta.methods.dmse.DMSE'>
    """
    cls = METHODS.get(name)
    key = cls.__name__.lower()
    if key != name.lower():
        # Checkpoints store the name of the class.
        entry = METHODS.find(name)
        _refuse_taken(key, cls, name)
        METHODS.add(key, lambda: cls, entry.origin if entry is not None else target_origin(name))
    return cls


def _refuse_taken(name: str, cls: Any, what: str) -> None:
    if name in built_in() and not cls.__module__.startswith("ctta."):
        raise ParameterError(
            f"{cls.__name__} of {what} has the name of a built-in method, and runs and checkpoints identify a method "
            "by the name of its class. Rename the class."
        )


def list_methods() -> list[str]:
    """Return the name of every method: built in, registered, or from installed plug-ins, which are not imported."""
    return METHODS.names()


#: The older name of `get_method`.
method = get_method


def methods() -> dict[str, type[Adapter]]:
    """Return every built-in and registered method by name, without those of plug-ins."""
    import_module("ctta.methods")  # a new method registers itself before it is in the table
    return {entry.name: entry.load() for entry in METHODS.entries(plugins=False)}
