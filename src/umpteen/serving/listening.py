"""Listening sockets, and how to stop listening without losing clients that have connected."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import sys

from umpteen.errors import ParamError

_SO_ATTACH_FILTER = 26


def bind(host: str, port: int, *, shared: bool) -> socket.socket:
    """A socket bound to the address. Each worker listens on a socket of its own, and the kernel distributes the
    connections evenly; with one socket for all, the first worker to wake would take most."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        if shared and shares_ports():
            # Only after the port was found free: with the option set, a port of another server would be accepted too.
            port = bound.getsockname()[1]
            bound.close()
            bound = _reuse(family, host, port)
    except OSError as error:
        bound.close()
        raise ParamError(f"cannot listen on {host}:{port} ({error.strerror or error})") from error
    return bound


def shares_ports() -> bool:
    return sys.platform == "linux"  # elsewhere SO_REUSEPORT does not distribute connections


def own_socket(holder: socket.socket) -> socket.socket:
    """A worker's own socket, bound to the same address as the one it was given."""
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
    """Makes a listening socket ignore new clients, so that those already connected can be accepted before it is
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
    # If the kernel does not accept the filter, the last clients to connect may be lost.
    with contextlib.suppress(OSError):
        listener.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(program) // 8, ctypes.addressof(steps))
        )
