"""Arithmetics that a device may have, and what the emulator makes of the self-test's vectors with one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from npu_sim.accumulation import SERIAL, Accumulation
from npu_sim.dtypes.formats import DTYPES
from npu_sim.engines.execute_options import ExecuteOptions, Overflow, configuration
from npu_sim.isa.atomic import SINK_LENGTH
from npu_sim.isa.codes import Mode
from npu_sim.isa.cube import scratch_words
from npu_sim.isa.dispatch import run_rows
from npu_sim.isa.op import Op
from npu_sim.isa.row import empty_rows
from npu_sim.products import DEFAULT_PRODUCT, get_product
from npu_sim.products.product import ACCUMULATION_PARTS, HF32_TIES
from npu_sim.units import ceil_div
from ops.studies.rounding import cast as cast_tensor
from ops.studies.selftest.probes import DEPTH
from ops.studies.selftest.readings import Shown, read_group, read_operands, read_overflow
from ops.studies.selftest.vectors import Vectors

GROUPS: Final = (2, 4, 8, 16, 32, 64, DEPTH)
"""Group sizes tried besides the one that the probes show."""
_FRACTAL_ROWS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """How a Cube multiplies and adds.

    Attributes
    ----------
    operands : str
        What it multiplies: "fp16", "bf16", "fp32" or "hf32".
    accumulation : Accumulation
        How it adds.
    overflow : {"inf_nan", "saturate"}
        Overflow mode, of casts too.
    mantissa_bits : int or None
        Of HF32.
    ties : str or None
        Of the rounding to HF32: "even", "away" or "toward_zero".
    result : str
        Type in which a result leaves the Cube, before it becomes that of the tensors.
    """

    operands: str
    accumulation: Accumulation
    overflow: Overflow = "inf_nan"
    mantissa_bits: int | None = None
    ties: str | None = None
    result: str = "fp32"

    @property
    def multiplies(self) -> str:
        """What is multiplied, in words."""
        through = ", result through fp16" if self.result == "fp16" else ""
        if self.operands != "hf32":
            return self.operands + through
        return f"hf32 of {self.mantissa_bits} bits, ties {(self.ties or '').replace('_', ' ')}"


def emulate(vectors: Vectors, arithmetic: Arithmetic) -> npt.NDArray:
    """Return A B [M, M] in the type of the tensors: one Mmad of the machine over all k, and the casts around it.

    Notes
    -----
    A device may cut k into several Mmads. Groups begin anew in each, which changes nothing as long as they fit.
    """
    overflow = arithmetic.overflow
    tensor_type = DTYPES[vectors.tensors].stored_as
    operand = DTYPES[arithmetic.operands]
    a, b = (
        cast_tensor(matrix, operand.stored_as, overflow=overflow).astype(np.float32)
        for matrix in (vectors.a, vectors.b)
    )
    c = _multiply(a, b, arithmetic)
    with np.errstate(over="ignore", invalid="ignore"):
        left = cast_tensor(c, arithmetic.result, overflow=overflow)
        return cast_tensor(left, tensor_type, overflow=overflow)


def _multiply(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32], arithmetic: Arithmetic) -> npt.NDArray:
    """Return float32 A B of one Mmad on buffers of the size it needs."""
    operand = DTYPES[arithmetic.operands]
    k0 = operand.block_elems
    (m, k), n = a.shape, b.shape[1]
    m1, k1, n1 = ceil_div(m, _FRACTAL_ROWS), ceil_div(k, k0), ceil_div(n, _FRACTAL_ROWS)
    # carriers lie k-major in each fractal of 256 of them; the order of fractals is that of Mmad
    l0a, l0b = (np.zeros((first, second, 256), np.float32) for first, second in ((m1, k1), (k1, n1)))
    padded = np.zeros((m1 * _FRACTAL_ROWS, k1 * k0), np.float32)
    padded[:m, :k] = a
    l0a[:, :, : _FRACTAL_ROWS * k0] = (
        padded.reshape(m1, _FRACTAL_ROWS, k1, k0).transpose(0, 2, 3, 1).reshape(m1, k1, -1)
    )
    padded = np.zeros((k1 * k0, n1 * _FRACTAL_ROWS), np.float32)
    padded[:k, :n] = b
    l0b[:, :, : _FRACTAL_ROWS * k0] = (
        padded.reshape(k1, k0, n1, _FRACTAL_ROWS).transpose(0, 2, 1, 3).reshape(k1, n1, -1)
    )
    l0c = np.zeros(n1 * m1 * 256, np.float32)
    row = empty_rows(1)
    mode = Mode.INIT | (Mode.HF32 if arithmetic.operands == "hf32" else 0)
    values = {"op": Op.MMAD, "dtype": operand.data, "mode": mode, "m": m, "n": n, "k": k}
    for name, value in values.items():
        row[name] = value
    nothing = np.zeros(0, np.uint8)
    bad = run_rows(
        row, 0, 1, nothing, nothing, l0a.reshape(-1), l0b.reshape(-1), l0c, nothing, nothing, nothing, nothing,
        _configuration(arithmetic),
        np.empty(scratch_words(l0a.size, l0b.size)), np.zeros(0, np.float32), np.zeros(SINK_LENGTH, np.int64),
        np.zeros((0, 4), np.int64), nothing,
    )  # fmt: skip
    assert bad < 0, "a Mmad within its buffers"
    return l0c.reshape(n1, m1 * _FRACTAL_ROWS, _FRACTAL_ROWS).transpose(1, 0, 2).reshape(-1, n1 * 16)[:m, :n]


def _configuration(arithmetic: Arithmetic) -> npt.NDArray[np.int64]:
    """Return the numeric configuration of the machine."""
    # its Cube multiplies every type, in both overflow modes
    chip = get_product(DEFAULT_PRODUCT)
    if arithmetic.mantissa_bits is not None:
        chip = replace(chip, hf32_mantissa_bits=arithmetic.mantissa_bits, hf32_ties=arithmetic.ties)
    return configuration(chip, ExecuteOptions(accumulation=arithmetic.accumulation, overflow=arithmetic.overflow))


def operand_choices(tensors: str, shown: Shown) -> Iterator[Arithmetic]:
    """Yield what may be multiplied, each with the serial chain, from what the probes show.

    Where they show nothing that the emulator has, what was asked for.
    """
    overflow = cast(Overflow, read_overflow(shown) or "inf_nan")
    plain = Arithmetic(operands=tensors, accumulation=SERIAL, overflow=overflow)
    chip = get_product(DEFAULT_PRODUCT)
    if DTYPES[tensors].item_bytes == 2:
        yield plain
        return
    seen = read_operands(shown)
    if seen.mantissa_bits == DTYPES["fp16"].mantissa_bits and not seen.wide:
        yield replace(plain, operands="fp16")
        yield replace(plain, operands="fp16", result="fp16")
    elif seen.mantissa_bits == DTYPES["fp32"].mantissa_bits:
        yield replace(plain, operands="fp32")
    elif seen.ties in HF32_TIES:
        yield replace(plain, operands="hf32", mantissa_bits=seen.mantissa_bits, ties=seen.ties)
    elif tensors == "hf32":
        yield replace(plain, mantissa_bits=chip.hf32_mantissa_bits, ties=chip.hf32_ties)
    else:
        yield plain


def base_models(shown: Shown) -> tuple[Accumulation, ...]:
    """Return the models to begin with: each group size, way of adding and rounding, with the parts None means."""
    group = read_group(shown)
    groups = sorted({*GROUPS, *([group] if group not in (None, 1) else [])})
    every = [
        Accumulation(group, inner, rounding)
        for group in groups
        for inner in ("exact", "tree")
        for rounding in ("rne", "rz")
    ]
    return (SERIAL, *every)


def with_every_part(model: Accumulation) -> tuple[Accumulation, ...]:
    """Return the model with each combination of parts that it can have, its own first."""
    made = [model]
    for part, values in ACCUMULATION_PARTS.items():
        others = [value for value in values if _has(model, part, value)]
        made += [_changed(other, part, value) for other in tuple(made) for value in others]
    return tuple(dict.fromkeys(made))


def _changed(model: Accumulation, part: str, value: str) -> Accumulation:
    changes: dict[str, Any] = {part: value}
    return replace(model, **changes)


def _has(model: Accumulation, part: str, value: str) -> bool:
    """Whether a model may have another value of a part."""
    if model.inner == "serial" or getattr(model, part) == value:
        return False
    return not (part == "overflow_to" and model.round == "rz")


def neighbours(arithmetic: Arithmetic) -> tuple[Arithmetic, ...]:
    """Return the arithmetics that differ in one thing, and the serial chain."""
    model = arithmetic.accumulation
    models: list[Accumulation] = [SERIAL]
    if model.inner == "serial":
        models += [Accumulation(group, "exact", "rne") for group in (2, 4, 8, 16)]
    else:
        flat = replace(model, round="rne", overflow_to=None) if model.round == "rz" else model
        models += [replace(model, group=group) for group in (model.group // 2, model.group * 2) if 1 < group <= DEPTH]
        models.append(replace(model, inner="tree" if model.inner == "exact" else "exact"))
        models.append(flat if model.round == "rz" else replace(model, round="rz", overflow_to=None))
        models += [
            _changed(model, part, value)
            for part, values in ACCUMULATION_PARTS.items()
            for value in values
            if _has(model, part, value)
        ]
    made = [replace(arithmetic, accumulation=other) for other in dict.fromkeys(models) if other != model]
    made += [
        replace(arithmetic, overflow=cast(Overflow, mode))
        for mode in get_product(DEFAULT_PRODUCT).overflow_modes
        if mode != arithmetic.overflow
    ]
    if arithmetic.operands == "hf32":
        made += [replace(arithmetic, ties=ties) for ties in HF32_TIES if ties != arithmetic.ties]
        made += [replace(arithmetic, mantissa_bits=bits) for bits in (10, 11) if bits != arithmetic.mantissa_bits]
    return tuple(made)
