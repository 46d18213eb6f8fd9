"""The products that one element of a convolution's gradient or output sums up, by definition and with their places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ops.common.taps import taps
from ops.studies.kinds import Tensors
from ops.studies.layers import AnyLayer, Layer, ResultName

_Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One factor of a product.

    Attributes
    ----------
    tensor : str
        "x", "dy" or "weight".
    at : tuple of int
        Its place there.
    value : float
        What was multiplied.
    """

    tensor: str
    at: tuple[int, ...]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One summand of an element.

    Attributes
    ----------
    value : float
        The product.
    factors : tuple of Factor
        One or two.
    """

    value: float
    factors: tuple[Factor, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Terms:
    """All summands of an element.

    Attributes
    ----------
    values : float64[n]
        Products.
    places : dict of str to int[n, rank]
        Where each factor is, by tensor.
    """

    values: npt.NDArray[np.float64]
    places: dict[str, _Places]

    def largest(self, count: int, tensors: Tensors) -> tuple[Term, ...]:
        """Return the ``count`` largest by magnitude, NaN first and zeros left out."""
        size = np.where(np.isnan(self.values), np.inf, np.abs(self.values))
        order = [i for i in np.argsort(-size, kind="stable")[:count] if size[i] > 0]
        return tuple(
            Term(
                value=float(self.values[i]),
                factors=tuple(
                    Factor(tensor=name, at=tuple(map(int, at[i])), value=float(tensors[name][tuple(at[i])]))
                    for name, at in self.places.items()
                ),
            )
            for i in order
        )


def terms_of(layer: AnyLayer, gradient: ResultName, tensors: Tensors, at: tuple[int, ...]) -> Terms | None:
    """Return the summands of one element of a result; those that read only padding, and a bias, are none.

    Parameters
    ----------
    layer : Layer or PoolingLayer
        Whose.
    gradient : {"dx", "dw", "db", "y"}
        Which result.
    tensors : mapping of str to array
        Operands as they were multiplied.
    at : tuple of int
        Place in the result.

    Returns
    -------
    Terms or None
        None for a pooling, whose terms are shares.
    """
    if not isinstance(layer, Layer):
        return None
    if gradient == "db":
        mask = np.zeros(layer.dy.shape, bool)
        mask[:, at[0]] = True
        places = np.argwhere(mask)
        return _multiplied({"dy": places}, tensors)
    wide, narrow = ("dy", "x") if layer.transposed else ("x", "dy")
    if gradient == "dw":
        parts = list(_of_weight(layer, at))
        names = (wide, narrow)
    else:
        # the output of a convolution is what the input gradient of a transposed one is, and the other way round
        is_narrow = layer.transposed == (gradient == "dx")
        parts = list((_of_narrow if is_narrow else _of_wide)(layer, at))
        names = ("dy" if gradient == "dx" else "x", "weight")
    rank = len(layer.weight_shape)
    joined = (np.concatenate([part[i] for part in parts] or [np.empty((0, rank), np.int64)]) for i in range(2))
    return _multiplied(dict(zip(names, joined, strict=True)), tensors)


def _multiplied(places: dict[str, _Places], tensors: Tensors) -> Terms:
    factors = [tensors[name][tuple(at.T)].astype(np.float64) for name, at in places.items()]
    with np.errstate(invalid="ignore"):
        values = factors[0] if len(factors) == 1 else factors[0] * factors[1]
    return Terms(values=values, places=places)


def _taps(layer: Layer) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...], tuple[slice, ...]]]:
    shapes = layer.wide.shape, layer.narrow.shape, layer.weight_shape
    return taps(*shapes, layer.stride, layer.padding, layer.dilation)


def _channels(layer: Layer, narrow_channel: int) -> range:
    """Return the channels of the wide side that a channel of the narrow side belongs to."""
    narrow_count, wide_count = layer.weight_shape[0] // layer.groups, layer.weight_shape[1]
    group = narrow_channel // narrow_count
    return range(group * wide_count, (group + 1) * wide_count)


def _grid(*axes: range | slice) -> _Places:
    """Return every combination of the places of some axes, the last running fastest."""
    lists = [np.arange(axis.start, axis.stop, axis.step or 1) for axis in axes]
    return np.stack([mesh.ravel() for mesh in np.meshgrid(*lists, indexing="ij")], axis=1)


def _of_weight(layer: Layer, at: tuple[int, ...]) -> Iterator[tuple[_Places, _Places]]:
    narrow_channel, local, *place = at
    channel = _channels(layer, narrow_channel)[local]
    images = range(layer.narrow.shape[0])
    for tap, read, served in _taps(layer):
        if list(tap) == place:
            yield (
                _grid(images, range(channel, channel + 1), *read),
                _grid(images, range(narrow_channel, narrow_channel + 1), *served),
            )


def _of_wide(layer: Layer, at: tuple[int, ...]) -> Iterator[tuple[_Places, _Places]]:
    """Yield what is multiplied with the weight, and the weight, for an element of the larger side."""
    image, channel, *place = at
    wide_count, narrow_count = layer.weight_shape[1], layer.weight_shape[0] // layer.groups
    group, local = divmod(channel, wide_count)
    channels = np.arange(group * narrow_count, (group + 1) * narrow_count)
    for tap, read, served in _taps(layer):
        reached = [_step(part, i) for part, i in zip(read, place, strict=True)]
        if None not in reached:
            window = [part.start + int(step or 0) for part, step in zip(served, reached, strict=True)]
            yield _beside(channels, (image,), window), _beside(channels, (), (local, *tap))


def _of_narrow(layer: Layer, at: tuple[int, ...]) -> Iterator[tuple[_Places, _Places]]:
    """Yield what is multiplied with the weight, and the weight, for an element of the smaller side."""
    image, narrow_channel, *place = at
    channels = np.array(_channels(layer, narrow_channel))
    for tap, read, served in _taps(layer):
        reached = [_step(part, i) for part, i in zip(served, place, strict=True)]
        if None not in reached:
            pixel = [part.start + int(step or 0) * part.step for part, step in zip(read, reached, strict=True)]
            weight = _beside(channels - channels[0], (narrow_channel,), tap)
            yield _beside(channels, (image,), pixel), weight


def _step(part: slice, place: int) -> int | None:
    """Return which place of a slice it is, None if it is none."""
    steps, rest = divmod(place - part.start, part.step or 1)
    return steps if rest == 0 and part.start <= place < part.stop else None


def _beside(channels: npt.NDArray[np.int64], before: tuple[int, ...], after: list[int] | tuple[int, ...]) -> _Places:
    """Return places that differ in one axis."""
    rows = [np.full(len(channels), i) for i in before], [np.full(len(channels), i) for i in after]
    return np.stack([*rows[0], channels, *rows[1]], axis=1)
