"""Low and high times of launches beside those of all their cores.

``python -m tests.long.moved_times [--json FILE]``

`npu_sim.engines.timeline.run_timelines` times with moved parameters the core alone that was the slowest before. Here
all cores of every launch are timed with them: of the calls with published times, and of the layers of two networks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from npu_sim.engines.intervals import bound_launch
from npu_sim.engines.timeline import run_timeline
from npu_sim.engines.timeline_result import TimelineOptions
from npu_sim.products import Product, get_product
from npu_sim.products.uncertainty import optimistic, pessimistic
from ops.studies.calls.planned import Request
from ops.studies.calls.request_items import read_item
from ops.studies.layers import GRADIENTS
from ops.studies.network.step import step_of_table
from ops.studies.scope import Scope
from ops.studies.validation import measured_rows
from tests.long.recording import parser_of, publish

PRODUCTS, NETWORKS, BATCH = ("910b", "910"), ("resnet50", "mobilenet_v2"), 8
MOST_OFF, LARGEST = 0.02, 1.1
"""Part of the times that may be off, and by how much."""


def requests() -> Iterator[tuple[Request, Product, Scope]]:
    """Yield the calls."""
    for row in measured_rows():
        item = read_item(row.request)
        yield item.request, item.product, "call" if item.scope == "call" else "kernel"
    for product in PRODUCTS:
        for name in NETWORKS:
            for layer in step_of_table(name, BATCH, 0, "fp16", GRADIENTS).layers:
                if layer.backward is not None:
                    yield layer.backward, get_product(product), "call"


def run() -> Mapping[str, Any]:
    """Compare all launches."""
    count, off, largest = 0, 0, 1.0
    for request, chip, scope in requests():
        plan = request.plan(chip)
        options = TimelineOptions(inputs_in_l2=plan.inputs_in_l2)
        for launch in plan.launches(scope):
            bounds = bound_launch(launch, chip, options=options)
            for found, moved in ((bounds.optimistic, optimistic), (bounds.pessimistic, pessimistic)):
                whole = run_timeline(launch, replace(chip, cost=moved(chip.cost)), options=options)
                ratio = found.total_cycles / whole.total_cycles
                count, off = count + 1, off + (ratio != 1)
                largest = max(largest, ratio, 1 / ratio)
    assert off <= MOST_OFF * count, (off, count)
    assert largest <= LARGEST, largest
    return {"times": count, "off": off, "largest_ratio": round(largest, 4)}


def main() -> None:
    """Run it from the command line."""
    arguments = parser_of("tests.long.moved_times", __doc__).parse_args()
    publish("python -m tests.long.moved_times", run(), arguments.json)


if __name__ == "__main__":
    main()
