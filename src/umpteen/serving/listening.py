"""Sockets to listen at, and how to stop listening without turning anybody away half-way."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import sys

from umpteen.errors import ParamError

_SO_ATTACH_FILTER = 26


def bind(host: str, port: int, *, shared: bool) -> socket.socket:
    """A socket at the address. Several workers each listen on one of their own there, and the kernel shares out
    the connections evenly; with one socket for all, the first worker to wake would take most."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        if shared and shares_ports():
            # Only now, and at the port just found free: with the option set, another server's port would do too.
            port = bound.getsockname()[1]
            bound.close()
            bound = _reuse(family, host, port)
    except OSError as error:
        bound.close()
        raise ParamError(f"cannot listen at {host}:{port} ({error.strerror or error})") from error
    return bound


def shares_ports() -> bool:
    return sys.platform == "linux"  # elsewhere SO_REUSEPORT does not share out


def own_socket(holder: socket.socket) -> socket.socket:
    """A worker's own socket at the address of the one it was given."""
    if not shares_ports():
        return holder
    address = holder.getsockname()
    own = _reuse(holder.family, address[0], address[1])
    holder.close()
    return own


def _reuse(family: int, host: str, port: int) -> socket.socket:
    shared = socket.socket(family, socket.SOCK_STREAM)
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    shared.bind((host, port))
    return shared


def refuse_newcomers(listener: socket.socket) -> None:
    """Makes a listening socket ignore who wants to connect, so that those who have can be accepted before it is
    closed: closing resets connections that wait. On Linux only; elsewhere some of them may be lost.

    The filter drops packets that ask for a connection (SYN in the 14th byte of the TCP header) and no others."""
    if sys.platform != "linux":
        return
    program = b"".join(
        struct.pack("HBBI", *step)
        for step in (
            (0x30, 0, 0, 13),  # load the byte of flags
            (0x45, 0, 1, 0x02),  # is SYN set?
            (0x06, 0, 0, 0),  # drop
            (0x06, 0, 0, 0xFFFFFFFF),  # keep
        )
    )
    steps = ctypes.create_string_buffer(program, len(program))
    # Where the kernel does not take the filter, those who connect in the last moment may be lost.
    with contextlib.suppress(OSError):
        listener.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(program) // 8, ctypes.addressof(steps))
        )
