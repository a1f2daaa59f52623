"""Bearer tokens: rights to ask, to teach and to administer."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path

from ctta.errors import BadData, MissingData, NotAllowed, NoToken

_SHORTEST = 16


class Right(IntEnum):
    """What a token allows; a larger right includes the smaller ones.

    ASK: get predictions from existing streams, without being learnt from, and read metadata, metrics and status.
    TEACH: create streams and be learnt from as well, and send labels.
    ADMIN: change modes, reset, restart, save, pin, roll back, promote, read and replace states, and remove streams.
    """

    ASK = 1
    TEACH = 2
    ADMIN = 3


class Tokens:
    """The tokens of a service. Only their digests are kept.

    Args:
        rights: The right of every token; None lets everybody do everything.
    """

    def __init__(self, rights: Mapping[str, Right] | None = None) -> None:
        self._rights = None if rights is None else [(_digest(token), right) for token, right in rights.items()]

    @property
    def open(self) -> bool:
        """Whether everybody may do everything."""
        return self._rights is None

    def right_of(self, authorization: str | None) -> Right:
        """Return the right of a request.

        Args:
            authorization: Its header or metadata ``authorization``, such as "Bearer 4f0c...", if it has one.

        Raises:
            NoToken: If it has no token, or an unknown one.
        """
        if self._rights is None:
            return Right.ADMIN
        scheme, _, token = (authorization or "").partition(" ")
        given = _digest(token.strip())
        # Every token is compared, in constant time, so that the time taken reveals nothing.
        found = [right for digest, right in self._rights if hmac.compare_digest(digest, given)]
        if scheme.lower() != "bearer" or not found:
            raise NoToken(
                "The request needs a token that the service knows: send the header 'Authorization: Bearer TOKEN'. Got "
                f"{'an unknown one' if token.strip() else 'none'}."
            )
        return found[0]


def require(right: Right, needed: Right) -> None:
    """Refuse a request whose token does not allow it.

    Args:
        right: The right of its token.
        needed: The right that it needs.

    Raises:
        NotAllowed: If the right is smaller.
    """
    if right < needed:
        raise NotAllowed(f"This needs a token with the right {needed.name.lower()}; got one with {right.name.lower()}.")


def read_tokens(file: Path) -> Tokens:
    """Read a file of tokens: on every line a right (ask, teach or admin) and a token; ``#`` starts a comment.

    Args:
        file: The file.

    Raises:
        MissingData: If there is no such file.
        BadData: If it is anything else. The message never contains a token.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise MissingData(f"The file of tokens {file.absolute()} does not exist.") from None
    except UnicodeDecodeError:
        raise BadData(f"The file of tokens {file} is not UTF-8 text.") from None
    rights: dict[str, Right] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        known = {right.name.lower(): right for right in Right}
        if len(words) != 2 or words[0] not in known:
            raise BadData(f"Line {number} of {file} must be a right ({', '.join(known)}) and a token.")
        right, token = words
        if len(token) < _SHORTEST or not token.isascii() or not token.isprintable():
            raise BadData(f"The token in line {number} of {file} must have at least {_SHORTEST} characters of ASCII.")
        if token in rights:
            raise BadData(f"The token in line {number} of {file} stands in an earlier line too.")
        rights[token] = known[right]
    if not rights:
        raise BadData(f"The file of tokens {file} has no token. Write lines of the form: RIGHT TOKEN")
    return Tokens(rights)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
