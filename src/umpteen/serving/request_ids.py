"""Ids of requests, which link an answer to its lines in the log."""

from __future__ import annotations

import re
import secrets

HEADER = b"x-request-id"
_GIVEN = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")


class RequestIds:
    """The client's id if it sends a plain one, else a new one: a prefix unique to this process, and a counter."""

    def __init__(self) -> None:
        self._prefix, self._made = secrets.token_hex(4).encode(), 0

    def choose(self, headers: dict[bytes, bytes]) -> bytes:
        given = headers.get(HEADER)
        if given is not None and _GIVEN.fullmatch(given):
            return given
        self._made += 1
        return b"%b-%x" % (self._prefix, self._made)
