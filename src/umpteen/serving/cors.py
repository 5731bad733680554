"""Cross-origin requests: the sites whose pages may call this server."""

from __future__ import annotations

import re
from collections.abc import Sequence

from umpteen.errors import ParamError

_ORIGIN = re.compile(r"https?://[A-Za-z0-9._\[\]:-]+")
_FOR_A_DAY = b"86400"

Header = tuple[bytes, bytes]


class Origins:
    """The origins allowed, such as ``https://tags.example.org``, or ``*`` for all."""

    def __init__(self, allowed: Sequence[str] = ()) -> None:
        for origin in allowed:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ParamError(f"cors_origins must be like https://example.org, or *, but one is {origin!r}")
        self._all = "*" in allowed
        self._allowed = {origin.encode() for origin in allowed}

    def __bool__(self) -> bool:
        return bool(self._allowed)

    def allows(self, origin: bytes | None) -> bool:
        return origin is not None and (self._all or origin in self._allowed)

    def headers(self, origin: bytes | None) -> list[Header]:
        """The headers that let a browser give an answer to the page that asked, if it is allowed."""
        if origin is None or not self.allows(origin):
            return [(b"vary", b"origin")]
        return [
            (b"access-control-allow-origin", b"*" if self._all else origin),
            (b"access-control-expose-headers", b"x-request-id, x-model-version, retry-after"),
            (b"vary", b"origin"),
        ]

    def preflight(self, method: str, headers: dict[bytes, bytes]) -> list[Header] | None:
        """The headers that answer a preflight request; None if this is not one, or it is not allowed."""
        origin = headers.get(b"origin")
        if method != "OPTIONS" or b"access-control-request-method" not in headers or not self.allows(origin):
            return None
        return [
            *self.headers(origin),
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", b"authorization, content-type, x-request-id"),
            (b"access-control-max-age", _FOR_A_DAY),
        ]
