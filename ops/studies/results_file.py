"""Results of studies kept in one file, so that the next study computes only what is missing.

A result is found again by a digest of all it depends on: the tensors, the gradient, the interface, the facts of the
product, the options that change a figure or a verdict, and the sources of this package.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import npu_sim
import ops
from npu_sim.budget import reserve
from npu_sim.errors import InputFileError
from npu_sim.report.files import check_writable, write_files
from npu_sim.report.from_plain import from_plain
from npu_sim.report.record import counted, to_plain
from ops.studies.attribution_report import AttributionRow
from ops.studies.layers import AnyLayer
from ops.studies.npz import open_file, refuse
from ops.studies.precision_results import LayerSummary, PrecisionRow, StudyOptions

FORMAT = "npu-sim precision results 2"
_BYTES_PER_BYTE = 30
_SELECTION = ("products", "cube_math_types", "layers", "gradients", "entries", "threads", "golden")
"""Options that choose results and change none."""


@cache
def _sources() -> str:
    found = hashlib.sha256()
    for package in (npu_sim, ops):
        root = Path(str(package.__file__)).parent
        for path in sorted(root.rglob("*.py")):
            found.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def digest(*parts: object) -> str:
    """Return a digest of what ``parts`` hold: the same in every process."""
    return hashlib.sha256("\0".join(map(_text, parts)).encode()).hexdigest()[:40]


def _text(value: object) -> str:
    """Return a representation in which sets have an order: theirs is another one in each process."""
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(_text, value)))}}}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_text, value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_text(key)}: {_text(item)}' for key, item in value.items())}}}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (f"{field.name}={_text(getattr(value, field.name))}" for field in dataclasses.fields(value))
        return f"{type(value).__name__}({', '.join(fields)})"
    return repr(value)


def layer_digest(layer: AnyLayer) -> str:
    """Return a digest of a layer: of its tensors, or of what draws them."""
    parts: list[object] = [_sources()]
    for field in dataclasses.fields(layer):
        value = getattr(layer, field.name)
        if not isinstance(value, np.ndarray):
            parts.append((field.name, value))
            continue
        parts.append((field.name, value.shape, value.dtype.name))
        if layer.drawn is None:
            parts.append(hashlib.sha256(np.ascontiguousarray(value).view(np.uint8).data).hexdigest())
    return digest(*parts)


def options_digest(options: StudyOptions) -> str:
    """Return a digest of the options that change a figure or a verdict."""
    fields = (field.name for field in dataclasses.fields(options) if field.name not in _SELECTION)
    return digest(*((name, getattr(options, name)) for name in fields))


class Results:
    """The results of a file.

    Parameters
    ----------
    path : Path
        File; it need not exist yet.

    Raises
    ------
    OutputFileError
        It cannot be written.
    InputFileError
        It exists and holds something else. Its text is one line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        check_writable(path)
        self._rows: dict[str, PrecisionRow] = {}
        self._layers: dict[str, LayerSummary] = {}
        self._causes: dict[str, tuple[AttributionRow, ...]] = {}
        if path.exists():
            self._read(str(path))

    def _read(self, name: str) -> None:
        with open_file(name) as file:
            size = self.path.stat().st_size
            reserve(f"Results of {name}", size * _BYTES_PER_BYTE)
            data = file.read(size)
        try:
            document = json.loads(data)
            if document["format"] != FORMAT:
                raise ValueError(f"its format is {document['format']!r}")
            self._rows = {key: from_plain(PrecisionRow, row) for key, row in document["rows"].items()}
            self._layers = {key: from_plain(LayerSummary, layer) for key, layer in document["layers"].items()}
            # files of programs that did not keep them have none
            causes = document.get("causes", {}).items()
            self._causes = {key: tuple(from_plain(AttributionRow, row) for row in rows) for key, rows in causes}
        except InputFileError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            refuse(name, f"The file must hold results ({FORMAT}), not something else ({error})", error)

    @property
    def words(self) -> str:
        """How much it holds."""
        causes = sum(map(len, self._causes.values()))
        return f"{counted(len(self._rows), 'result')}{f' and the causes of {causes}' if causes else ''}"

    def row(self, key: str) -> PrecisionRow | None:
        """Return the result with that digest, if there is one."""
        return self._rows.get(key)

    def layer(self, key: str) -> LayerSummary | None:
        """Return the summary with that digest, if there is one."""
        return self._layers.get(key)

    def keep(self, layer_key: str, layer: LayerSummary, rows: dict[str, PrecisionRow]) -> None:
        """Add results and write the file anew, whole or not at all."""
        self._layers[layer_key] = layer
        self._rows |= rows
        self._write()

    def causes(self, key: str) -> tuple[AttributionRow, ...] | None:
        """Return where the errors of the calls with that digest come from, if that is known."""
        return self._causes.get(key)

    def keep_causes(self, key: str, rows: tuple[AttributionRow, ...]) -> None:
        """Add where errors come from and write the file anew, whole or not at all."""
        self._causes[key] = rows
        self._write()

    def _write(self) -> None:
        document: dict[str, Any] = {"format": FORMAT, "layers": self._layers, "rows": self._rows}
        if self._causes:
            document["causes"] = self._causes
        text = json.dumps(to_plain(document), allow_nan=False)
        write_files({self.path: text.encode()})
