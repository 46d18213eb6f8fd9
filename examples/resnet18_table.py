"""One training step of a ResNet-18 with the gradients of a product: errors of every layer, and the time it takes.

The model is written out in plain ``torch.nn``, its input random. The gradients of all convolutions are the emulated
machine's, with ``--forward`` and ``--linear`` also the forward convolutions and the products of the linear layer. Needs
the extra ``torch``::

    pip install '.[torch]'
    python examples/resnet18_table.py --product 910b --cube-math-type 1
    python examples/resnet18_table.py --time --threads 1 --accumulation serial
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn

import ops.torch

SEED = 0
CLASSES = 10


class Block(nn.Module):
    """Two 3x3 convolutions beside an identity, or beside a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of both ways."""
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet18(width: int) -> nn.Sequential:
    """Return 17 convolutions, 3 shortcuts and a linear layer; the first stage has ``width`` channels, usually 64."""
    stem = nn.Sequential(
        nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    )
    stages = {}
    inputs = width
    for number in range(4):
        outputs = width << number
        stages[f"stage{number + 1}"] = nn.Sequential(
            Block(inputs, outputs, 1 if number == 0 else 2), Block(outputs, outputs, 1)
        )
        inputs = outputs
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))
    model = nn.Sequential()
    for name, module in {"stem": stem, **stages, "head": head}.items():
        model.add_module(name, module)
    return model


class Step:
    """A training step: forward and backward pass and a step of SGD."""

    def __init__(self, batch: int, size: int, width: int) -> None:
        torch.manual_seed(SEED)
        self.model = resnet18(width)
        self._x, self._y = torch.randn(batch, 3, size, size), torch.randint(CLASSES, (batch,))
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def __call__(self, emulation: ops.torch.Emulation | None = None) -> None:
        """Do the step in PyTorch, or with ``emulation``."""
        self._optimizer.zero_grad()
        if emulation is None:
            nn.functional.cross_entropy(self.model(self._x), self._y).backward()
        else:
            with emulation:
                nn.functional.cross_entropy(self.model(self._x), self._y).backward()
        self._optimizer.step()


def seconds_of(step: Step, emulation: ops.torch.Emulation | None) -> float:
    """Return the time of one step."""
    begin = time.perf_counter()
    step(emulation)
    return time.perf_counter() - begin


def print_times(step: Step, emulation: ops.torch.Emulation, rounds: int) -> None:
    """Time the step in PyTorch and emulated in turn, and print the fastest of each."""
    step(), step(emulation)
    own, emulated, operators = [], [], []
    for _ in range(rounds):
        own.append(seconds_of(step, None))
        emulation.clear()
        emulated.append(seconds_of(step, emulation))
        operators.append(emulation.emulator_seconds)
    best = min(range(rounds), key=emulated.__getitem__)
    print(f"one step in PyTorch {min(own) * 1e3:.0f} ms, emulated {emulated[best] * 1e3:.0f} ms: ", end="")
    print(f"{emulated[best] / min(own):.2f} times; {operators[best] * 1e3:.0f} ms of it in the emulated operators")


def main() -> None:
    """Print the table of a step, or with ``--time`` its time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--product", default="910b", help="series or SoC (default: 910b)")
    parser.add_argument("--cube-math-type", default="0", help="0 to 3, or a name (default: 0)")
    parser.add_argument("--accumulation", help="model of the Cube's additions, such as serial")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=64, help="height and width of the images (default: 64)")
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage (default: 64)")
    parser.add_argument("--forward", action="store_true", help="emulate the forward convolutions too")
    parser.add_argument("--linear", action="store_true", help="emulate the linear layer too")
    parser.add_argument("--time", action="store_true", help="time the step instead")
    parser.add_argument("--rounds", type=int, default=3, help="steps to time of each kind (default: 3)")
    parser.add_argument("--threads", type=int, help="of PyTorch and of the emulator (default: what each takes)")
    given = parser.parse_args()
    if given.threads is not None:
        torch.set_num_threads(given.threads)
    step = Step(given.batch, given.size, given.width)
    emulation = ops.torch.emulate(
        product=given.product,
        cube_math_type=given.cube_math_type,
        model=step.model,
        forward=given.forward,
        linear=given.linear,
        compare=not given.time,
        refused="torch",
        accumulation=given.accumulation,
        threads=given.threads,
    )
    if given.time:
        print_times(step, emulation, given.rounds)
    else:
        step(emulation)
        print(emulation.record)


if __name__ == "__main__":
    main()
