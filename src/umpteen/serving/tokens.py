"""Access tokens, with names.

A token file has one token per line, after its name if it has one; empty lines and those that begin with # are
ignored:

    # name    token
    crawler   3f9c…
    editors   a01b…

With two tokens side by side, clients can change from the old one to the new one in their own time.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from umpteen.errors import ParamError

_TOKEN = re.compile(r"[!-~]{8,512}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_LONGEST_FILE = 1 << 20
_MOST = 1000
BEARER = b"Bearer "


class Tokens:
    """Tokens by name. Without any, no request needs one."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        for name, token in tokens.items():
            if not _NAME.fullmatch(name):
                raise ParamError(f"a token's name must match {_NAME.pattern}, but is {name!r:.80}")
            if not _TOKEN.fullmatch(token):
                raise ParamError(f"the token {name!r} must be 8 to 512 visible ASCII characters, but is not")
        if len(tokens) > _MOST:
            raise ParamError(f"there must be at most {_MOST} tokens, but there are {len(tokens)}")
        # Hashed, so that every comparison takes the same time and no memory dump of a worker shows a token.
        self._digests = {name: _digest(token.encode()) for name, token in tokens.items()}

    @classmethod
    def of(cls, token: str | None) -> Tokens:
        return cls({} if token is None else {"default": token})

    @classmethod
    def read(cls, file: str | Path) -> Tokens:
        """The tokens of a file. At least one: an empty file must not let everyone in."""
        try:
            # Without waiting for a writer, if it is a pipe: that would stop the watcher.
            with open(file, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as handle:
                if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
                    raise ParamError(f"{file}: a token file must be a regular file, since it is read again and again")
                content = handle.read(_LONGEST_FILE + 1)
        except OSError as error:
            raise ParamError(f"{file}: the tokens cannot be read ({error.strerror or error})") from error
        if len(content) > _LONGEST_FILE:
            raise ParamError(f"{file}: a token file must have at most {_LONGEST_FILE} bytes, but has more")
        try:
            lines = content.decode("ascii").splitlines()
        except UnicodeDecodeError:
            raise ParamError(f"{file}: tokens must be visible ASCII characters, but are not") from None
        tokens: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) > 2:
                raise ParamError(f"{file}:{number}: a line must be a token, or a name and a token")
            name = words[0] if len(words) == 2 else "default"
            if name in tokens:
                raise ParamError(f"{file}:{number}: the name {name!r} must be unique, but an earlier token has it")
            tokens[name] = words[-1]
        if not tokens:
            raise ParamError(f"{file}: must have at least one token, but has none: the server would let everyone in")
        try:
            return cls(tokens)
        except ParamError as error:
            raise ParamError(f"{file}: {error}") from None

    def __bool__(self) -> bool:
        return bool(self._digests)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokens) and self._digests == other._digests

    __hash__ = None  # type: ignore[assignment]

    @property
    def names(self) -> list[str]:
        return list(self._digests)

    def find(self, authorization: bytes) -> str | None:
        """The name of the token in an Authorization header, or None. Always takes the same time."""
        if not authorization.startswith(BEARER):
            return None
        given, found = _digest(authorization[len(BEARER) :]), None
        for name, digest in self._digests.items():
            if hmac.compare_digest(digest, given):
                found = name
        return found


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
