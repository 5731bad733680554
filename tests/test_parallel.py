"""The loop all kernels run on, Ctrl-C, and the choice of instruction set."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from umpteen import _native
from umpteen.errors import ParamError
from umpteen.threads import resolve_threads


@pytest.mark.parametrize("threads", [1, 2, 7, 64])
@pytest.mark.parametrize("n_items", [0, 1, 5, 1000])
def test_every_item_runs_once(threads, n_items):
    seen, workers = [], set()
    _native.parallel_for(n_items, threads, lambda item, worker: (seen.append(item), workers.add(worker)))
    assert sorted(seen) == list(range(n_items))
    assert workers <= set(range(min(threads, max(n_items, 1))))


def test_several_threads_really_run():
    barrier = threading.Barrier(3, timeout=10)
    _native.parallel_for(3, 3, lambda item, worker: barrier.wait())


@pytest.mark.parametrize("threads", [1, 4])
def test_the_first_exception_stops_the_rest(threads):
    seen = []

    def body(item, worker):
        seen.append(item)
        if item == 10:
            raise KeyError("ten")

    with pytest.raises(KeyError, match="ten"):
        _native.parallel_for(100_000, threads, body)
    assert len(seen) < 100_000


@pytest.mark.measured
def test_a_token_cancels_from_another_thread():
    token = _native.CancelToken()
    threading.Timer(0.1, token.cancel).start()
    started = time.monotonic()
    with pytest.raises(_native.Cancelled):
        _native.parallel_for(10**9, 2, lambda item, worker: time.sleep(0.001), token)
    assert token.cancelled
    assert time.monotonic() - started < 5


LONG_KERNEL = """
import numpy as np, scipy.sparse as sp, sys
from umpteen.models.linear import LinearModel, LinearShard
rng = np.random.default_rng(0)
W = sp.csr_matrix(rng.random((4000, 1000), dtype=np.float32))
model = LinearModel([LinearShard.from_weights(W, np.zeros(4000), np.arange(4000))], 1000, 4000)
n_rows, per_row = 200_000, 200
indices = np.tile(np.arange(0, 1000, 5, dtype=np.int32), n_rows)
indptr = np.arange(0, n_rows * per_row + 1, per_row)
X = sp.csr_matrix((np.ones(len(indices), np.float32), indices, indptr), shape=(n_rows, 1000))
print("ready", flush=True)
model.predict_topk(X, 5, threads=int(sys.argv[1]))
print("done", flush=True)
"""


@pytest.mark.process
@pytest.mark.measured
@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_stops_a_long_kernel_within_a_second(threads):
    process = subprocess.Popen(
        [sys.executable, "-c", LONG_KERNEL, str(threads)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    assert process.poll() is None, "the kernel was meant to run for long"
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    # The kernel itself is gone within a second; the rest is Python freeing its memory and leaving.
    assert time.monotonic() - started < 1.5
    assert "KeyboardInterrupt" in err
    assert "done" not in out


@pytest.mark.process
def test_works_in_a_forked_child():
    """OpenMP would hang here; threads that live for one call only do not."""
    _native.parallel_for(8, 4, lambda item, worker: None)
    child = os.fork()
    if child == 0:
        try:
            _native.parallel_for(8, 4, lambda item, worker: None)
            os._exit(0)
        finally:
            os._exit(1)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the forked child hangs")


def test_instruction_sets():
    names = _native.available_simd()
    assert names[0] == "baseline"
    assert _native.simd() in names
    with pytest.raises(ValueError, match=r"must be one this machine runs \(baseline.*, but is 'mmx'"):
        _native.use_simd("mmx")


@pytest.mark.process
@pytest.mark.parametrize("name", _native.available_simd())
def test_the_environment_chooses_the_instruction_set(name):
    code = "from umpteen import _native; print(_native.simd())"
    env = os.environ | {"UMPTEEN_SIMD": name}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == name


def test_resolve_threads():
    assert resolve_threads(None) >= 1
    assert resolve_threads(3) == 3
    for bad in (0, -1, 1.5, True):
        with pytest.raises(ParamError, match="threads must be an integer of at least 1, but is"):
            resolve_threads(bad)
