"""The text reader against scikit-learn's and napkinXC's, on EURLex-4K, in one run.

python benchmarks/reader.py
"""

from __future__ import annotations

import lzma
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from common import data_root, run_parts, table, time_all, version

import umpteen

MEMORY = """
import sys, numpy, scipy.sparse, umpteen, umpteen.data.xc_text
def peak():  # of this process alone: getrusage would also know the parent's
    return 1024 * int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1])
before = peak()
data = umpteen.read_xc(sys.argv[1])
print(peak() - before)
"""


def compare() -> str:
    from napkinxc.datasets import load_libsvm_file
    from sklearn.datasets import load_svmlight_file

    with tempfile.TemporaryDirectory() as folder:
        path, plain = Path(folder) / "train.txt", Path(folder) / "no-header.txt"
        content = lzma.decompress((data_root() / "EURLex-4K" / "train.txt.xz").read_bytes())
        path.write_bytes(content)
        plain.write_bytes(content.split(b"\n", 1)[1])
        jobs = {
            "umpteen, 2 threads": lambda: umpteen.read_xc(path, threads=2),
            "umpteen, 1 thread": lambda: umpteen.read_xc(path, threads=1),
            version("napkinxc"): lambda: load_libsvm_file(str(path)),
            version("scikit-learn"): lambda: load_svmlight_file(
                plain, multilabel=True, zero_based=True, dtype=np.float32
            ),
        }
        theirs, _ = jobs[version("scikit-learn")]()
        data = jobs["umpteen, 2 threads"]()
        assert (theirs != data.X).nnz == 0, "the readers disagree"
        seconds = time_all(jobs, 9)
        peak = int(subprocess.run([sys.executable, "-c", MEMORY, path], capture_output=True, check=True).stdout)
        arrays = sum(a.nbytes for m in (data.X, data.Y) for a in (m.data, m.indices, m.indptr))
        size = path.stat().st_size
    ours = seconds["umpteen, 2 threads"]
    rows = [
        [name, f"{s * 1000:.0f} ms", f"{size / s / 1e6:.0f} MB/s", f"{s / ours:.1f}"] for name, s in seconds.items()
    ]
    memory = (
        f"Memory of our reader: peak {peak / 1e6:.1f} MB beyond the imports, of which the file {size / 1e6:.1f} MB "
        f"and the result {arrays / 1e6:.1f} MB: {(peak - size) / arrays:.2f} × the result beyond the file."
    )
    return table(["reader", "median of 9", "speed", "time / ours"], rows) + "\n\n" + memory


PARTS = {"eurlex": ("EURLex-4K's training text", compare)}

if __name__ == "__main__":
    run_parts("reader", "Reading text", PARTS)
