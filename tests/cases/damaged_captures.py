"""Files of captured layers, damaged in every way: bytes, truncations, splices, zip directories, .npy headers, bombs."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable

import numpy as np

from tests.cases.wild_arguments import EDGES


def sound(compressed: bool) -> bytes:
    """Return a small file that is as it must be."""
    stream = io.BytesIO()
    rng = np.random.default_rng(1)
    arrays = {
        "a.x": rng.standard_normal((2, 4, 5, 6)).astype(np.float32),
        "a.dy": rng.standard_normal((2, 6, 3, 3)).astype(np.float32),
        "a.weight_shape": np.array([6, 2, 3, 2]), "a.stride": np.array([2, 2]), "a.padding": np.array([1, 0]),
        "a.dilation": np.array([1, 1]), "a.groups": np.array(2), "metadata": np.array('{"seed": 3}'),
    }  # fmt: skip
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)  # type: ignore[arg-type]  # names with a dot
    return stream.getvalue()


_SOUND = (sound(False), sound(True))


def _patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def _edge_bytes(rng: np.random.Generator, size: int) -> bytes:
    edge = EDGES[int(rng.integers(len(EDGES) - 1))]
    return (edge & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _bytes(data: bytes, rng: np.random.Generator) -> bytes:
    copy = bytearray(data)
    for _ in range(int(rng.choice((1, 1, 2, 8, 64)))):
        copy[int(rng.integers(len(copy)))] ^= 1 << int(rng.integers(8))
    return bytes(copy)


def _truncated(data: bytes, rng: np.random.Generator) -> bytes:
    cut = int(rng.integers(len(data)))
    return data[:cut] if rng.random() < 0.7 else data[cut:]


def _spliced(data: bytes, rng: np.random.Generator) -> bytes:
    other = _SOUND[int(rng.integers(2))]
    one, two = sorted(int(place) for place in rng.integers(0, len(data), 2))
    start = int(rng.integers(len(other)))
    return data[:one] + other[start : start + two - one] + data[two if rng.random() < 0.5 else one :]


def _records(data: bytes) -> list[tuple[int, tuple[tuple[int, int], ...]]]:
    """Return where local headers, directory entries and the end of the directory lie, with their fields."""
    local = ((4, 2), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2))
    entry = ((4, 2), (8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (34, 2), (42, 4))
    end = ((4, 2), (6, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2))
    found: list[tuple[int, tuple[tuple[int, int], ...]]] = []
    marks: tuple[tuple[bytes, tuple[tuple[int, int], ...]], ...] = (
        (b"PK\3\4", local), (b"PK\1\2", entry), (b"PK\5\6", end)
    )  # fmt: skip
    for mark, fields in marks:
        at = data.find(mark)
        while at >= 0:
            found.append((at, fields))
            at = data.find(mark, at + 1)
    return found


def _zip_fields(data: bytes, rng: np.random.Generator) -> bytes:
    records = _records(data)
    for _ in range(int(rng.choice((1, 1, 2)))):
        at, fields = records[int(rng.integers(len(records)))]
        offset, size = fields[int(rng.integers(len(fields)))]
        data = _patched(data, at + offset, _edge_bytes(rng, size))
    return data


def _header(rng: np.random.Generator) -> bytes:
    """Return a .npy header that claims anything."""
    edge = [EDGES[int(rng.integers(len(EDGES) - 1))] for _ in range(4)]
    shapes = (
        f"({edge[0]},)", f"({edge[0]}, {edge[1]}, {edge[2]}, {edge[3]})", "(2, 4, 5, 6)", "()", "(-1, -240)", "(True,)",
        "(" + "1, " * 70 + ")", "(0, 4611686018427387904, 4)", "[2, 4]", "None", "(2.0,)", "(1e9,)",
        "(9" + "9" * 5000 + ",)",
    )  # fmt: skip
    kinds = (
        "'<f4'", "'|O'", "'>f2'", "'|V2'", "'|V0'", f"'|V{edge[0]}'", f"'<U{edge[1]}'", "'<c16'", "'<M8[s]'", "'|b1'",
        "[('a', '<f4')]", "'i4,('", "3", "('<f4', (2, 2))",
    )  # fmt: skip
    order = str(rng.choice(("True", "False", "1", "None")))
    shape, kind = shapes[int(rng.integers(len(shapes)))], kinds[int(rng.integers(len(kinds)))]
    text = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}"
    if rng.random() < 0.1:
        text = "[" * 3000 + text
    version = int(rng.choice((1, 1, 1, 2, 3, 9)))
    raw = text.encode() + b"\n"
    length = len(raw) if rng.random() < 0.9 else EDGES[int(rng.integers(len(EDGES) - 1))]
    width = 2 if version == 1 else 4
    return b"\x93NUMPY" + bytes((version, 0)) + (length & ((1 << 8 * width) - 1)).to_bytes(width, "little") + raw


def _members(data: bytes, rng: np.random.Generator) -> bytes:
    """Write the archive anew with a member more, less, twice, or of another content."""
    stream = io.BytesIO()
    method = int(rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)))
    with (
        warnings.catch_warnings(),
        zipfile.ZipFile(io.BytesIO(data)) as old,
        zipfile.ZipFile(stream, "w", method) as new,
    ):
        warnings.simplefilter("ignore")  # two members of a name
        names = old.namelist()
        victim = names[int(rng.integers(len(names)))]
        for name in names:
            content = old.read(name)
            if name == victim:
                body = content[10 + struct.unpack("<H", content[8:10])[0] :]
                content = (
                    _header(rng) + body, _header(rng), content + b"\0" * int(rng.integers(9)), content[:-1], b"",
                )[int(rng.integers(5))]  # fmt: skip
                name = str(
                    rng.choice((name, name, name, "a.nonsense.npy", "x.npy", "../a.x.npy", "a.x", "metadata.npy"))
                )
            if not (name == victim and rng.random() < 0.1):
                new.writestr(name, content)
    return stream.getvalue()


def bomb(claimed: int, inflated: int, *, honest: bool) -> bytes:
    """Return a file with one member of zeros that inflates to ``inflated`` bytes.

    Parameters
    ----------
    claimed : int
        Bytes the .npy header speaks of.
    inflated : int
        Bytes of the deflated stream.
    honest : bool
        Whether the zip directory tells the inflated size; otherwise it tells what fits the header.
    """
    header = b"\x93NUMPY\1\0"
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, {claimed // 4}), }}\n".encode()
    header += struct.pack("<H", len(text)) + text
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    parts, crc = [packer.compress(header)], zlib.crc32(header)
    piece = bytes(1 << 20)
    for _ in range(inflated >> 20):
        parts.append(packer.compress(piece))
        crc = zlib.crc32(piece, crc)
    body = b"".join([*parts, packer.flush()])
    size = len(header) + ((inflated >> 20 << 20) if honest else claimed)
    name = b"a.x.npy"
    common = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 0, crc, len(body), size & 0xFFFFFFFF, len(name), 0)
    local = b"PK\3\4" + common + name
    entry = b"PK\1\2" + struct.pack("<H", 20) + common + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(entry), len(local) + len(body), 0)
    return local + body + entry + end


def _bombs(_: bytes, rng: np.random.Generator) -> bytes:
    claimed = int(rng.choice((4, 1 << 20, 1 << 28, 1 << 31)))
    return bomb(claimed, int(rng.choice((1, 16))) << 20, honest=bool(rng.integers(2)))


KINDS: dict[str, Callable[[bytes, np.random.Generator], bytes]] = {
    "bytes": _bytes,
    "truncated": _truncated,
    "spliced": _spliced,
    "zip fields": _zip_fields,
    "members": _members,
    "bombs": _bombs,
}
_SHARES = (0.25, 0.1, 0.15, 0.25, 0.24, 0.01)


def damaged(rng: np.random.Generator) -> tuple[str, bytes]:
    """Return the kind of damage and a damaged file."""
    kind = str(rng.choice(list(KINDS), p=_SHARES))
    return kind, KINDS[kind](_SOUND[int(rng.integers(2))], rng)
