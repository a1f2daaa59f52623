"""Protocols: which domains arrive in which order. A built-in one is an entry of `ctta.protocol.built_in`."""

from ctta.protocol.table import PROTOCOLS, get_protocol, order_text, protocol_of, register
from ctta.protocol.value import Option, Order, Protocol, Resets, StreamParts

__all__ = [
    "PROTOCOLS",
    "Option",
    "Order",
    "Protocol",
    "Resets",
    "StreamParts",
    "get_protocol",
    "order_text",
    "protocol_of",
    "register",
]
