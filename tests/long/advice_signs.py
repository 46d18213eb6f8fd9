"""The sign of what `npu-sim perf --advice` promises: each change is made in the request itself, and timed anew.

``python -m tests.long.advice_signs [--json FILE]``

Advice changes records of calls; here the same change is made to the fields of a request, as a user would, and read and
planned from there. A change has the sign it promises if the call takes less time than before where a gain is promised,
and no less where none is. A change that gains is also timed with every parameter of the product in favour of a shorter
time and against it: advice that holds is faster there too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from npu_sim.engines.intervals import LaunchBounds
from npu_sim.errors import NpuSimError
from npu_sim.products import get_product
from ops.studies.advice import AdvisedCall, Change, advise, worth_it
from ops.studies.calls.answers import time_item
from ops.studies.calls.planned import BoundedCall
from ops.studies.calls.request_items import read_item
from tests.long.recording import parser_of, publish

PRODUCTS = ("910b", "910")
AT_LEAST = 0.9
"""Of the changes; both for their sign and for what holds under moved parameters."""
CONVOLUTIONS = (
    (1, 3, 16, 32, 3, 1), (2, 16, 16, 8, 1, 1), (2, 20, 20, 9, 3, 1), (4, 20, 40, 14, 3, 1), (8, 64, 64, 56, 3, 1),
    (8, 64, 256, 56, 1, 1), (8, 256, 64, 56, 1, 1), (4, 128, 128, 28, 3, 1), (4, 128, 128, 56, 3, 2),
    (8, 256, 512, 28, 1, 2), (2, 512, 512, 7, 3, 1), (16, 1024, 256, 14, 1, 1), (1, 2048, 512, 7, 1, 1),
    (4, 3, 64, 56, 7, 2), (8, 64, 192, 27, 5, 1), (8, 192, 384, 13, 3, 1), (32, 384, 256, 13, 3, 1),
    (1, 33, 65, 17, 3, 1), (3, 63, 127, 31, 3, 1), (6, 97, 97, 21, 3, 1), (5, 24, 72, 28, 1, 1), (2, 144, 24, 28, 1, 1),
    (2, 960, 160, 7, 1, 1), (12, 40, 48, 10, 5, 2), (1, 512, 512, 32, 3, 1), (9, 10, 10, 10, 1, 1),
    (32, 16, 32, 28, 3, 1), (64, 8, 8, 12, 3, 1),
)  # fmt: skip
"""Images, channels of x and y, rows and columns, window, stride; of both fp16 and fp32 tensors."""
PARTS = (0.75, 0.5, 0.25)


def calls() -> Iterator[dict[str, Any]]:
    """Yield the requests: all gradients of a convolution."""
    for n, cin, cout, size, taps, stride in CONVOLUTIONS:
        for dtype in ("fp16", "fp32"):
            yield {
                "op": "conv_backward", "x": [n, cin, size, size], "w": [cout, cin, taps, taps], "stride": stride,
                "pads": taps // 2, "in_dtype": dtype, "cube_math_type": 0 if dtype == "fp16" else 3,
            }  # fmt: skip


def changed(words: str, call: dict[str, Any], cores: int) -> Sequence[tuple[dict[str, Any], int]]:
    """Return what a change is of the fields of a request, with how many times the images; any of them may be taken."""
    if "cubeMathType" in words:
        return [(call | {"cube_math_type": int(words.split("cubeMathType ")[1][0])}, 1)]
    if words.startswith("keep tensors in"):
        return [(call | {"in_dtype": words.split()[3], "cube_math_type": 0}, 1)]
    n, cin, *rest = call["x"]
    if "batch" in words:
        return [(call | {"x": [2 * n, cin, *rest]}, 2)]
    if "block_dim" in words:
        return [(call | {"block_dim": max(int(part * cores), 1)}, 1) for part in PARTS]
    whole = [-(-channels // 16) * 16 for channels in (call["w"][0], cin)]
    return [(call | {"x": [n, whole[1], *rest], "w": [*whole, *call["w"][2:]]}, 1)]


def time_of(call: dict[str, Any]) -> BoundedCall | None:
    """Return the times of a request, None of a refused one."""
    try:
        return time_item(read_item(call))
    except NpuSimError:
        return None


def _seconds(bounds: Sequence[LaunchBounds], which: str) -> float:
    return sum(getattr(one, which).task_seconds() for one in bounds)


def outcome(change: Change, call: dict[str, Any], before: BoundedCall, cores: int) -> tuple[bool, bool]:
    """Return whether a change has the sign it promises, and whether it has it whatever the parameters are."""
    timed = [(after, times) for one, times in changed(change.words, call, cores) if (after := time_of(one)) is not None]
    assert timed, (change.words, call)
    gains = {
        which: min(_seconds(after.bounds, which) / times for after, times in timed) < _seconds(before.bounds, which)
        for which in ("optimistic", "expected", "pessimistic")
    }
    promised = change.gain > 0
    return gains["expected"] == promised, all(gain == promised for gain in gains.values())


def run() -> Mapping[str, Any]:
    """Try the advice on every call and product."""
    found: Counter[str] = Counter()
    wrong = []
    for product in PRODUCTS:
        chip = get_product(product)
        for fields in calls():
            call = {**fields, "product": product}
            before = time_of(call)
            if before is None:
                found["refused calls"] += 1
                continue
            found["calls"] += 1
            advised = AdvisedCall(request=before.request, count=1, seconds=before.task_seconds)
            changes = advise([advised], chip, "call")
            shown = worth_it(changes)
            for change in changes:
                right, holds = outcome(change, call, before, chip.cube_core_count)
                kind = "shown" if change in shown else "other"
                found.update({f"{kind} changes": 1, f"{kind} right": right, f"{kind} hold": holds})
                if not right:
                    wrong.append(f"{product} {fields['x']} {fields['w']} {fields['in_dtype']}: {change.words}")
    assert found["calls"] >= 50, found
    for kind in ("shown", "other"):
        assert found[f"{kind} right"] >= AT_LEAST * found[f"{kind} changes"], (found, wrong)
    assert found["shown hold"] >= AT_LEAST * found["shown changes"], found
    return {**dict(sorted(found.items())), "wrong": wrong}


def main() -> None:
    """Run it from the command line."""
    arguments = parser_of("tests.long.advice_signs", __doc__).parse_args()
    publish("python -m tests.long.advice_signs", run(), arguments.json)


if __name__ == "__main__":
    main()
