"""Compressed files of several streams: every row, or an error that says where; never the first stream alone."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re

import pytest
import zstandard

import umpteen
from umpteen.data.files import read_bytes, read_chunks
from umpteen.errors import DataError

COMPRESS = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "Zstandard": lambda content: zstandard.ZstdCompressor(write_checksum=True).compress(content),
}
FIRST = b"".join(b"0 %d:1\n" % i for i in range(400))
SECOND = b"".join(b"1 %d:2\n" % i for i in range(500))


@pytest.fixture(params=COMPRESS)
def kind(request):
    return request.param


def read(tmp_path, content: bytes) -> bytes:
    file = tmp_path / "file.txt"
    file.write_bytes(content)
    return read_bytes(file).tobytes()


def test_streams_are_joined(tmp_path, kind):
    compress = COMPRESS[kind]
    assert read(tmp_path, compress(FIRST) + compress(SECOND)) == FIRST + SECOND
    assert read(tmp_path, compress(b"") + compress(FIRST) + compress(b"")) == FIRST
    assert read(tmp_path, compress(b"")) == b""
    many = [b"%d\n" % i for i in range(300)]
    assert read(tmp_path, b"".join(map(compress, many))) == b"".join(many)


@pytest.mark.parametrize("cut", [1, 4, 12, 40])
def test_a_second_stream_cut_short_is_refused(tmp_path, kind, cut):
    first, second = COMPRESS[kind](FIRST), COMPRESS[kind](SECOND)
    with pytest.raises(DataError, match=rf"the compressed data \({kind}\) is damaged or cut short: ") as error:
        read(tmp_path, first + second[:-cut])
    assert f"in stream 2, which begins at byte {len(first):,} of the file" in str(error.value)


def test_a_second_stream_that_is_damaged_is_refused_with_its_place(tmp_path, kind):
    """Any byte of it: the outcome is an error, or, in bits that mean nothing, the whole content."""
    first, second = COMPRESS[kind](FIRST), COMPRESS[kind](SECOND)
    refused = 0
    for at in range(0, len(second), 3):
        damaged = bytearray(second)
        damaged[at] ^= 0x55
        try:
            assert read(tmp_path, first + damaged) == FIRST + SECOND
        except DataError as error:
            refused += 1
            place = re.search(r"begins at byte ([\d,]+)|at byte ([\d,]+)", str(error))
            assert int((place[1] or place[2]).replace(",", "")) >= len(first)
    assert refused > len(second) / 3 * 0.9


def test_what_follows_must_be_a_stream(tmp_path, kind):
    first = COMPRESS[kind](FIRST)
    for behind in (b"garbage", b"x", FIRST, COMPRESS["gzip" if kind != "gzip" else "xz"](SECOND)):
        with pytest.raises(DataError, match=rf"at byte {len(first):,} of the file another stream must begin"):
            read(tmp_path, first + behind)


def test_padding_is_what_the_formats_say(tmp_path):
    for zeros in (4, 400, 1 << 19):
        content = lzma.compress(FIRST) + bytes(zeros)
        assert read(tmp_path, content) == FIRST
        assert read(tmp_path, content + lzma.compress(SECOND)) == FIRST + SECOND
    with pytest.raises(DataError, match=r"are 3 zeros, but must be a multiple of 4"):
        read(tmp_path, lzma.compress(FIRST) + bytes(3))
    for zeros in (1, 7, 1 << 19):  # as on tapes
        assert read(tmp_path, gzip.compress(FIRST) + bytes(zeros) + gzip.compress(SECOND)) == FIRST + SECOND
        assert read(tmp_path, gzip.compress(FIRST) + bytes(zeros)) == FIRST
    skipped = b"\x50\x2a\x4d\x18\x04\0\0\0meta"
    zstd = COMPRESS["Zstandard"]
    assert read(tmp_path, zstd(FIRST) + skipped + zstd(SECOND) + skipped) == FIRST + SECOND
    with pytest.raises(DataError, match="cut short"):
        read(tmp_path, zstd(FIRST) + skipped[:-1])


def test_rows_are_never_lost(tmp_path, kind):
    """What users saw: half of the rows, and no word."""
    file = tmp_path / "train.svm"
    good, bad = COMPRESS[kind](SECOND), bytearray(COMPRESS[kind](SECOND))
    file.write_bytes(COMPRESS[kind](FIRST) + good)
    assert umpteen.read_svmlight(file, one_based=False).n_rows == 900
    bad[0] ^= 0xFF  # its very first byte: what Python's readers take for the end
    file.write_bytes(COMPRESS[kind](FIRST) + bad)
    with pytest.raises(DataError, match=r"train\.svm: the compressed data .* is damaged or cut short: at byte"):
        umpteen.read_svmlight(file, one_based=False)
    bad = bytearray(good)
    bad[10] ^= 0xFF
    file.write_bytes(COMPRESS[kind](FIRST) + bad + good)
    with pytest.raises(DataError, match=r"train\.svm: the compressed data .* in stream 2|train\.svm: .* at byte"):
        umpteen.read_svmlight(file, one_based=False)


def test_pieces_are_about_as_large_as_asked_for(tmp_path):
    content = b"abcdefgh" * (1 << 18)
    for kind in ("gzip", "bzip2", "xz"):
        file = tmp_path / kind
        file.write_bytes(COMPRESS[kind](content))
        pieces = list(read_chunks(file, 1 << 16))
        assert b"".join(pieces) == content
        assert max(map(len, pieces)) <= 1 << 16


def test_many_small_streams_across_what_is_fed_at_once(tmp_path, kind, monkeypatch):
    """The bytes of a stream's end and of the next one's beginning come in any pieces."""
    from umpteen.data import decompress

    content = COMPRESS[kind](FIRST) + COMPRESS[kind](b"") + COMPRESS[kind](SECOND)
    for fed in (1, 2, 3, 7, 64):
        monkeypatch.setattr(decompress, "_FED", fed)
        assert b"".join(decompress.decompress(kind, io.BytesIO(content).read, 100)) == FIRST + SECOND
