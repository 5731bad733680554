"""Connections to a Ray cluster: to one that runs, or to one that is started here."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from umpteen.errors import ParamError, UmpteenError

#: Ray's settings in this process, unless the environment sets them. With its defaults, Ray waits minutes for a
#: machine whose network was cut before it gives the shards to others; with these, some twenty seconds.
_BEHAVIOUR = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_grpc_client_keepalive_time_ms": "10000",
    "RAY_grpc_client_keepalive_timeout_ms": "10000",
    "RAY_core_worker_rpc_server_reconnect_timeout_base_s": "5",
    "RAY_core_worker_rpc_server_reconnect_timeout_max_s": "10",
    "RAY_raylet_rpc_server_reconnect_timeout_base_s": "5",
    "RAY_raylet_rpc_server_reconnect_timeout_max_s": "10",
}


def connect(address: str | None, threads: int | None) -> contextlib.ExitStack:
    """Connects to a cluster, or starts one; closing the stack undoes that completely."""
    import ray

    stack = contextlib.ExitStack()
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in ("auto", "local") and "://" not in address and address != here:
            raise ParamError(f"address is {address!r}, but this program is already connected to Ray at {here}")
        return stack
    options: dict[str, Any] = {"logging_level": "warning", "log_to_driver": False}
    if address == "local":
        # Sockets, logs and spilled objects go into their own directory, which is deleted when Ray stops.
        place = tempfile.mkdtemp(prefix="umpteen-ray-", dir=_short_directory())
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        options |= {"include_dashboard": False, "num_cpus": threads, "_temp_dir": place}
        if sys.platform == "linux":
            options["_node_ip_address"] = "127.0.0.2"  # this machine only; Ray takes 127.0.0.1 to mean "any"
    try:
        if found := re.fullmatch(r"([^/]+):(\d+)", address):  # Ray itself would keep trying for minutes
            socket.create_connection((found[1], int(found[2])), timeout=10).close()
        with _environment(_BEHAVIOUR):
            ray.init(address=address, **options)
    except (OSError, RuntimeError, ValueError) as error:
        stack.close()
        raise UmpteenError(f"Ray cannot be reached at {address!r} ({str(error).splitlines()[0]})") from error
    stack.callback(ray.shutdown)
    return stack


def _short_directory() -> str | None:
    """/tmp if the usual temporary directory's path is too long for Ray's sockets, which allow about 100 bytes."""
    return None if len(tempfile.gettempdir()) <= 24 or not Path("/tmp").is_dir() else "/tmp"


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Sets environment variables that are not set yet, within a with-block."""
    added = [name for name in values if name not in os.environ]
    os.environ.update({name: values[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
