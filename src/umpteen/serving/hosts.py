"""The host names this server answers to.

A page on another site can make its own name lead to 127.0.0.1 and then read, as its own origin, the answers of a
server on this machine (DNS rebinding). The request still has that name in its Host header, so a server that answers
only to names it knows is safe. A numeric address is always safe: no other page can have it as its origin.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from umpteen.errors import ParamError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ALL_ADDRESSES = ("0.0.0.0", "::", "")
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:/@?#\s]+))(?::[0-9]{1,5})?")
_NAME = re.compile(r"(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252})")
#: Accepted values to remember; more than this are made up.
_REMEMBERED = 64


class Hosts:
    """The host names that are accepted.

    Parameters
    ----------
    bound
        The address the server listens on. If that is all addresses, any numeric address is accepted.
    allowed
        More names and addresses; ``*.example.org`` for all subdomains, ``*`` for any name.
    """

    def __init__(self, bound: str, allowed: Sequence[str] = ()) -> None:
        for name in allowed:
            if name != "*" and not _NAME.fullmatch(name) and not _is_address(name.strip("[]")):
                raise ParamError(
                    f"allowed_hosts must be names or addresses without a port, or *.NAME, or *, but one is {name!r}"
                )
        plain = [name.strip("[]").rstrip(".").lower() for name in (*LOOPBACK, bound, *allowed)]
        self._all = "*" in plain
        self._names = {name for name in plain if not name.startswith("*")}
        self._below = tuple(name[1:] for name in plain if name.startswith("*."))
        self._any_address = bound in _ALL_ADDRESSES
        self._seen: set[bytes] = set()

    def allows(self, host: bytes) -> bool:
        """Whether a Host header's value is one of them, whatever port it names."""
        if host in self._seen:
            return True
        found = _HOST.fullmatch(host.decode("latin-1"))
        if found is None:
            return False
        name = (found[1] or found[2]).rstrip(".").lower()
        good = (
            self._all
            or name in self._names
            or name.endswith(self._below)
            or (self._any_address and _is_address(name))
        )
        if good and len(self._seen) < _REMEMBERED:
            self._seen.add(host)
        return good


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
