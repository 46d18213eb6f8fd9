"""The error that a chain of input gradients carries from layer to layer, from the last layer to the first.

Each layer gets the emulated gradient of the layer behind it, and is compared with the same chain in float64. What the
error would be without rounding in this layer is the part that it was given ("carried"); the rest is its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from npu_sim.dtypes.formats import dtype_name
from npu_sim.errors import ShapeError
from npu_sim.fenv import default_fenv
from ops.studies.attribution_case import Case
from ops.studies.attribution_parts import Float64
from ops.studies.attribution_report import ErrorParts
from ops.studies.goldens import Goldens
from ops.studies.kinds import Asked, emulator
from ops.studies.layers import Layer
from ops.studies.registry import kinds_of
from ops.studies.rounding import cast


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedError:
    """The input gradient of one layer of a chain.

    Attributes
    ----------
    layer, compute_dtype : str
        Name, and what was multiplied.
    error : ErrorParts
        Against the chain in float64.
    """

    layer: str
    compute_dtype: str
    error: ErrorParts


@default_fenv
def carry(
    layers: Sequence[Layer],
    *,
    product: str,
    cube_math_type: int = 0,
    accumulation: str | None = None,
    masks: Sequence[np.ndarray | None] | None = None,
    threads: int | None = None,
) -> tuple[CarriedError, ...]:
    """Return how the error of input gradients grows from layer to layer.

    Parameters
    ----------
    layers : sequence of Layer
        In the order of the forward pass, with their weights. The input of each has the shape of the output of the one
        before it; the chain begins with the ``dy`` of the last, and those of the others count by their type alone.
    product : str
        SoC version, series alias or product file.
    cube_math_type, accumulation, threads
        As of `ops.convolution_backward`.
    masks : sequence of (bool array or None), or None
        For each layer where its input gradient passes on, in its shape: the derivative of a ReLU in front of it.

    Returns
    -------
    tuple of CarriedError
        From the last layer to the first.

    Raises
    ------
    ShapeError
        Shapes do not fit each other, or a layer has no weight.
    NpuSimError
        A call is refused.

    Examples
    --------
    >>> import numpy as np
    >>> from ops.studies.layers import Layer
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((2, 16, 8, 8)).astype(np.float32)
    >>> one = dict(x=x, dy=x, weight_shape=(16, 16, 3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1)
    >>> layers = [Layer(name=n, weight=rng.standard_normal((16, 16, 3, 3)).astype(np.float32), **one) for n in "ab"]
    >>> for step in carry(layers, product="910b", cube_math_type=2):
    ...     print(step.layer, f"{step.error.relative_l2:.1e}", f"carried {step.error.share('carried'):.2f}")
    b 3.7e-04 carried 0.00
    a 4.8e-04 carried 0.61
    """
    if not layers:
        raise ShapeError("layers must be at least one, not none")
    own_masks = [None] * len(layers) if masks is None else list(masks)
    _check(layers, own_masks)
    backend = emulator()
    chip = backend.get_product(product)
    asked = Asked(
        product=product, chip=chip, cube_math_type=cube_math_type, accumulation=accumulation, threads=threads,
        backend=backend,
    )  # fmt: skip
    emulated: np.ndarray = layers[-1].dy
    exact: Float64 = emulated.astype(np.float64)
    found = []
    for layer, mask in zip(reversed(layers), reversed(own_masks), strict=True):
        given = replace(layer, dy=cast(emulated, dtype_name(layer.dy.dtype), overflow=chip.overflow_mode))
        (kind,) = kinds_of(given, ("dx",))
        assert layer.weight is not None, "checked"
        golden = kind.golden(layer, {"dy": exact, "weight": layer.weight}, backend)
        case = Case.of(given, kind, "aclnn", asked, Goldens(given, kind, None, backend))
        found.append(
            CarriedError(layer=layer.name, compute_dtype=case.run.compute_dtype, error=case.error_parts(golden))
        )
        emulated, exact = case.run.gradient, golden
        if mask is not None:
            emulated, exact = np.where(mask, emulated, emulated.dtype.type(0)), np.where(mask, exact, 0.0)
    return tuple(found)


def _check(layers: Sequence[Layer], masks: Sequence[np.ndarray | None]) -> None:
    """Refuse layers that do not follow each other."""
    if len(masks) != len(layers):
        raise ShapeError(f"masks must be {len(layers)}, one for each layer, not {len(masks)}")
    for number, (layer, mask) in enumerate(zip(layers, masks, strict=True)):
        if layer.weight is None:
            raise ShapeError(f"Layer {layer.name} must have a weight")
        if mask is not None and mask.shape != layer.x_shape:
            raise ShapeError(f"Mask of layer {layer.name} must have shape {layer.x_shape}, not {mask.shape}")
        if number and layers[number - 1].dy.shape != layer.x_shape:
            before = layers[number - 1]
            raise ShapeError(
                f"Input of layer {layer.name} must have the shape of the output of {before.name}, {before.dy.shape}, "
                f"not {layer.x_shape}"
            )
