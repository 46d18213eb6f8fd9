"""Layer tables: one TOML file a network.

A line is a layer, in forward order::

    title = "VGG-16"
    source = "paper, table, and whose variant it is"
    layers = [
        { name = "conv1", x = [3, 224, 224], weight = [64, 3, 3, 3], stride = 2, padding = 1, bias = true },
        { name = "up", x = [64, 7, 9, 9], weight = [64, 32, 2, 2, 2], stride = [1, 2, 2], transposed = true },
        { name = "pool", x = [512, 7, 7], pool = 7 },
        { name = "fc", linear = [512, 1000], bias = true },
    ]

``x`` is channels and extents of one image, ``weight`` the shape of the weight, ``pool`` the window of an average
pooling, ``linear`` the features of input and output of a linear layer.
``stride`` (1), ``padding`` (0), ``groups`` (1), ``transposed`` and ``bias`` (both false) may be left out; the first two
are one number for all axes or one each. Layers that are nothing of these, such as maximum poolings, are not listed.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from npu_sim.errors import InputFileError, shown
from ops.studies.models.layers import ConvLayer, LinearLayer, Network, PoolLayer

_FOLDER = Path(__file__).parent
MODELS = tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))
"""Names of the networks."""


def network(name: str) -> Network:
    """Return the layer table of a network.

    Raises
    ------
    InputFileError
        If there is no such network.
    """
    if not isinstance(name, str) or name not in MODELS:
        given = name if isinstance(name, str) and len(name) < 40 else shown(name)
        raise InputFileError(f"Model must be one of {', '.join(MODELS)}, not {given}")
    return _read(name)


@cache
def _read(name: str) -> Network:
    table = tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    layers = tuple(_layer(line) for line in table["layers"])
    return Network(name=name, title=table["title"], source=table["source"], layers=layers)


def _layer(line: dict[str, Any]) -> ConvLayer | PoolLayer | LinearLayer:
    if "linear" in line:
        features_in, features_out = line["linear"]
        return LinearLayer(name=line["name"], features=(features_in, features_out), bias=line.get("bias", False))
    x = tuple(line["x"])
    if "pool" in line:
        return PoolLayer(name=line["name"], x=x, kernel_size=line["pool"])
    return ConvLayer(
        name=line["name"],
        x=x,
        weight_shape=tuple(line["weight"]),
        stride=_per_axis(line.get("stride", 1), len(x) - 1),
        padding=_per_axis(line.get("padding", 0), len(x) - 1),
        groups=line.get("groups", 1),
        transposed=line.get("transposed", False),
        bias=line.get("bias", False),
    )


def _per_axis(value: int | list[int], axes: int) -> tuple[int, ...]:
    return (value,) * axes if isinstance(value, int) else tuple(value)
