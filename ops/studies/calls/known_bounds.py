"""Bounds of launches that are known because an equal launch was timed before, elsewhere in global memory.

The calls of a network convert the same tensors over and over, between addresses that differ. No cost rule and no clock
reads an address in GM (`npu_sim.engines.core_classes`); a time also depends on which tensors are the same, how large
they are, and which were there before the launch (`npu_sim.engines.timeline_memory`). So two launches are equal here if
they agree in all but the place of their tensors, up to what 512 bytes align.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache

from npu_sim.engines.intervals import LaunchBounds, bound_launch
from npu_sim.engines.timeline_memory import bytes_in
from npu_sim.engines.timeline_result import TimelineOptions
from npu_sim.products import Product
from npu_sim.products.cost import CostParams
from npu_sim.program.launch import Kernel, Launch, PhaseKernels

_MOST = 1024
"""Launches kept, a few KB each: those of several networks."""
_ALIGNED_BYTES = 512
_TENSOR = "_tensor"


class KnownBounds:
    """Bounds by what makes launches equal; the oldest go first."""

    def __init__(self) -> None:
        self._bounds: dict[bytes, LaunchBounds] = {}
        self._noted: list[dict[bytes, LaunchBounds]] = []

    def of(self, launch: Launch, product: Product, options: TimelineOptions) -> LaunchBounds:
        """Return what `bound_launch` does.

        Raises
        ------
        ProgramError
            As `bound_launch`.
        """
        key = launch_key(launch)
        if key is None:
            return bound_launch(launch, product, options=options)
        parameters = _digest_of(product.cost)
        whole = repr((product.name, product.timing_clock_hz, product.l2_bytes, parameters, options, key))
        name = hashlib.sha256(whole.encode()).digest()
        found = self._bounds.get(name)
        if found is None:
            found = bound_launch(launch, product, options=options)
            self.learn({name: found})
        for noted in self._noted:
            noted[name] = found
        return found

    def learn(self, bounds: Mapping[bytes, LaunchBounds]) -> None:
        """Take bounds that were found elsewhere, by what `noted` calls them."""
        self._bounds |= bounds
        for name in list(self._bounds)[: max(len(self._bounds) - _MOST, 0)]:
            del self._bounds[name]

    @contextmanager
    def noted(self) -> Iterator[dict[bytes, LaunchBounds]]:
        """Give a mapping that receives the bounds of all that is asked for meanwhile."""
        self._noted.append({})
        try:
            yield self._noted[-1]
        finally:
            self._noted.pop()


@lru_cache(maxsize=64)
def _digest_of(cost: CostParams) -> bytes:
    return hashlib.sha256(repr(cost).encode()).digest()


def launch_key(launch: Launch) -> Hashable | None:
    """Return what the time of a launch of this project's kernels depends on, None where that is not known.

    The fields ``x`` and ``x_tensor`` of a record of parameters are the address and the number of a tensor
    (`ops.common.records.tensor_fields`), as are ``address`` and ``tensor`` where there is one.
    """
    names = launch.params.dtype.names or ()
    if not launch.trusted or launch.by_turns or not names:
        return None
    placeless, values = launch.params.copy(), launch.params[0]
    tensors: dict[int, int] = {}
    places: dict[int, tuple[int, int]] = {}
    sizes = []
    for name in names:
        address = "address" if name == "tensor" else name.removesuffix(_TENSOR)
        if address == name or address not in names:
            continue
        number = int(values[name])
        if not 0 <= number < len(launch.gm.tensors):
            continue
        tensor = launch.gm.tensors[number]
        places[number] = tensor.address, tensor.address + tensor.byte_count
        placeless[name] = tensors.setdefault(number, len(tensors))
        placeless[address] = values[address] - tensor.address
        sizes.append((tensor.byte_count, tensor.initialised, tensor.address % _ALIGNED_BYTES))
    if bytes_in(places.values()) != sum(end - first for first, end in places.values()):
        # bytes in several tensors are touched once
        return None
    kernels = launch.kernel.phases if isinstance(launch.kernel, PhaseKernels) else (launch.kernel,)
    return (
        launch.name, tuple(map(_name, kernels)), names, placeless.tobytes(), tuple(sizes),
        launch.core_count, launch.phase_count, launch.step_rows, launch.core_kind,
        launch.fixed_cost, launch.error_kind, launch.stands_for_record, launch.doubts, launch.inputs,
        launch.code_in_memory, launch.reuse_bytes, launch.list_commands,
    )  # fmt: skip


def _name(kernel: Kernel) -> str:
    """Return the name of one of this project's jitted generators."""
    return f"{kernel.__module__}.{kernel.__qualname__}"
