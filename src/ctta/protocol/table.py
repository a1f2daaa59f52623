"""The protocols by name.

Besides the built-in ones they come from `register`, from installed packages with entry points of the group
``ctta.protocols``, or from the user's own code as ``package.module:name`` or ``file.py:name``.
"""

from __future__ import annotations

from collections.abc import Mapping

from ctta.errors import CttaError, UnknownProtocol
from ctta.protocol.built_in import BUILT_IN
from ctta.protocol.value import SHUFFLED, Protocol
from ctta.registry import NamedRegistry

_STORED = "as stored, one domain after another"

#: Protocols by name.
PROTOCOLS = NamedRegistry(UnknownProtocol, Protocol, "ctta.protocol.Protocol", BUILT_IN)


def register(protocol: Protocol) -> Protocol:
    """Make a protocol known under its name, in this process.

    Args:
        protocol: The protocol.

    Raises:
        ParameterError: If it is not a `Protocol`, or has the name of a built-in one.
    """
    return PROTOCOLS.register(protocol, getattr(protocol, "build", None))


def get_protocol(name: str) -> Protocol:
    """Return the protocol of this name.

    Args:
        name: A name that `ctta ls protocols` gives, or a `Protocol` as ``package.module:name`` or ``file.py:name``.

    Raises:
        UnknownProtocol: If there is no such protocol; the message suggests the nearest known name.
        PluginError: If it belongs to a plug-in that fails to import.
        UserCodeError: If the user's own code does not exist or fails to import.
    """
    return PROTOCOLS.get(name)


def protocol_of(recorded: Mapping[str, object]) -> Protocol | None:
    """Return the protocol that a record names, or None if it is not known here.

    Args:
        recorded: The protocol, as stored in the specification of a run.
    """
    entry = PROTOCOLS.find(str(recorded.get("name")))
    try:
        return None if entry is None else entry.load()
    except CttaError:  # a plug-in that has broken since must not keep records from being read
        return None


def order_text(recorded: Mapping[str, object], seed: int) -> str:
    """Describe how the images of a run are ordered.

    Args:
        recorded: The protocol, as stored in the specification of the run.
        seed: Seed of the run.
    """
    if recorded.get("order") == "stored":
        return _STORED
    protocol = protocol_of(recorded)
    if protocol is None:
        return SHUFFLED.replace("{seed}", str(seed))
    changed = recorded.get("options")
    values = {**protocol.options, **(changed if isinstance(changed, Mapping) else {}), "seed": seed}
    text = protocol.order
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text
