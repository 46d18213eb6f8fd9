"""Tensors drawn from the distributions that precision standards ask for, seeded.

Sources: hicann/opbase docs/zh/ops_precision_standard, experimental_standard.md at aa3cd74 ("uniform", "normal",
"special") and commercial_standard.md at 6049643 ("uniform", "wide", "small", "outliers").
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim.budget import reserve
from ops.studies.layers import AnyLayer, Capture, Layer, OwnStandard
from ops.studies.rounding import cast

_SPECIALS = (math.nan, math.inf, -math.inf)
_SPECIAL_PART = 1000
"""One element in so many, and at least one, is special or an outlier, as the commercial standard has outliers."""
_OUTLIER = 1000.0
TENSORS = ("x", "dy", "weight", "bias")
"""Tensors of layers that are drawn, where a layer has them."""

Draw = Callable[[np.random.Generator, tuple[int, ...]], npt.NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Uniform:
    """Uniform in [low, high]."""

    low: float = -5.0
    high: float = 5.0

    def __call__(self, rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Return float64 values."""
        return rng.uniform(self.low, self.high, shape)


@dataclass(frozen=True, slots=True)
class Normal:
    """Normal; mean and standard deviation are drawn once for a tensor, uniformly from their ranges."""

    mean: tuple[float, float]
    deviation: tuple[float, float]

    def __call__(self, rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Return float64 values."""
        mean, deviation = rng.uniform(*self.mean), rng.uniform(*self.deviation)
        return rng.normal(mean, deviation, shape)


@dataclass(frozen=True, slots=True)
class Spoiled:
    """Another distribution with a thousandth of the elements, at least one, multiplied by or replaced with a value.

    Attributes
    ----------
    base : Uniform or Normal
        Of the other elements.
    factors : tuple of float
        One of them multiplies an element that is spoiled; a NaN or infinity replaces it.
    """

    base: Uniform | Normal
    factors: tuple[float, ...]

    def __call__(self, rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Return float64 values."""
        values = self.base(rng, shape)
        flat = values.reshape(-1)
        if flat.size:
            chosen = rng.choice(flat.size, max(1, flat.size // _SPECIAL_PART), replace=False)
            factors = rng.choice(self.factors, chosen.size)
            is_factor = np.isfinite(factors)
            flat[chosen] = np.where(is_factor, flat[chosen] * np.where(is_factor, factors, 1), factors)
        return values


@dataclass(frozen=True, slots=True)
class Constant:
    """The same value everywhere."""

    value: float

    def __call__(self, rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Return float64 values."""
        return np.full(shape, self.value)


DISTRIBUTIONS: Mapping[str, Draw] = {
    "uniform": Uniform(),
    "normal": Normal((-5.0, 5.0), (0.1, 2.0)),
    "wide": Normal((-100.0, 100.0), (1.0, 25.0)),
    "small": Uniform(-1e-3, 1e-3),
    "outliers": Spoiled(Normal((-100.0, 100.0), (1.0, 25.0)), (_OUTLIER,)),
    "special": Spoiled(Uniform(), _SPECIALS),
}
"""By the names of ``--generate``: U[-5, 5]; N(mu, sigma) with mu in [-5, 5] and sigma in [0.1, 2]; with mu in
[-100, 100] and sigma in [1, 25]; U[-1e-3, 1e-3]; "wide" with a thousandth times 1000; "uniform" with a thousandth NaN
or infinite."""


def placeholder(shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
    """Return zeros that take no memory, for a tensor that is drawn when its turn comes."""
    return np.broadcast_to(np.zeros((), dtype), shape)


@dataclass(frozen=True, slots=True)
class Drawn:
    """The tensors of a layer that are drawn when they are needed; always the same.

    Attributes
    ----------
    seed : int
        0 or more.
    layer : str
        Name of the layer, so that its tensors do not depend on the layers before.
    draws : mapping of str to distribution
        By name of the tensor.
    """

    seed: int
    layer: str
    draws: Mapping[str, Draw]

    def tensors(self, layer: AnyLayer) -> dict[str, np.ndarray]:
        """Return the tensors that ``layer`` has placeholders of."""
        found: dict[str, np.ndarray] = {}
        for name, draw in self.draws.items():
            held = getattr(layer, name)
            reserve(f"Drawing {self.layer}.{name}", held.size * 16)
            rng = np.random.default_rng([self.seed, zlib.crc32(self.layer.encode()), zlib.crc32(name.encode())])
            with np.errstate(over="ignore"):
                wide = draw(rng, held.shape).astype(np.float32)
            found[name] = wide if held.dtype == np.float32 else cast(wide, _FORMATS[held.dtype.name])
        return found


def _complete(layer: AnyLayer) -> AnyLayer:
    """Return a layer with placeholders for tensors that a file need not have, as their shapes are known."""
    dtype = layer.dy.dtype
    if isinstance(layer, Layer):
        return layer if layer.weight is not None else replace(layer, weight=placeholder(layer.weight_shape, dtype))
    return layer if layer.x is not None else replace(layer, x=placeholder(layer.x_shape, dtype))


_FORMATS = {"float16": "fp16", "bfloat16": "bf16"}


def drawn_layer(
    layer: AnyLayer,
    seed: int,
    draws: Mapping[str, Draw],
    *,
    cube_math_types: tuple[int, ...] | None = None,
    standards: tuple[OwnStandard, ...] = (),
) -> AnyLayer:
    """Return a layer whose tensors are drawn when its turn comes; what the framework computed of others is left out.

    A tensor without a distribution stays as it is.
    """
    names = [name for name in TENSORS if name in draws and getattr(layer, name, None) is not None]
    held = {name: placeholder(getattr(layer, name).shape, getattr(layer, name).dtype) for name in names}
    drawn = Drawn(seed, layer.name, {name: draws[name] for name in names})
    changes: dict[str, Any] = {**held, "grad_input": None, "drawn": drawn, "cube_math_types": cube_math_types}
    changes["standards"] = standards
    if isinstance(layer, Layer):
        return replace(layer, **changes, grad_weight=None, grad_bias=None)
    return replace(layer, **changes)


def regenerated(capture: Capture, distribution: str, seed: int) -> Capture:
    """Return the same layers with tensors drawn from one distribution."""
    draws = dict.fromkeys(TENSORS, DISTRIBUTIONS[distribution])
    layers = tuple(drawn_layer(_complete(layer), seed, draws) for layer in capture.layers)
    about = {"distribution": distribution, "seed": seed}
    return replace(capture, layers=layers, metadata={**capture.metadata, **about})
