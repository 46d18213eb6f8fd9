"""Train a small CNN on handwritten digits once in PyTorch and once on every product and mode, and compare the curves.

The gradients of all convolutions are the emulated machine's (`ops.torch.emulate`); forward passes, the linear layer and
the optimiser are PyTorch's, so whatever differs comes from the gradients. Needs the extras ``capture`` (torch and
scikit-learn) and ``report`` (matplotlib)::

    pip install '.[capture,report]'
    python examples/train_digits_cnn.py --epochs 3 --picture digits.png
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from capture_digits_cnn import BATCH, SEED, DigitsNet
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import nn

import ops.torch
from npu_sim.dtypes.cube_math import CubeMathType
from npu_sim.errors import OperatorError

TRAINED = 1440
"""Images to train with; the accuracy is that on the other 357."""


@dataclass
class Run:
    """Loss of every step, and the accuracy at the end on images that were not trained with."""

    name: str
    losses: list[float]
    accuracy: float


def train(name: str, epochs: int, emulation: ops.torch.Emulation | None) -> Run:
    """Train from one seed; with ``emulation`` the gradients of the convolutions are the machine's."""
    torch.manual_seed(SEED)
    digits = load_digits()
    images = torch.from_numpy((digits.images / 16.0).astype(np.float32))[:, None]
    labels = torch.from_numpy(digits.target.astype(np.int64))
    model = DigitsNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    losses = []
    for _ in range(epochs):
        for batch in torch.randperm(TRAINED).split(BATCH):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            if emulation is None:
                loss.backward()
            else:
                with emulation:
                    loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    with torch.no_grad():
        right = model(images[TRAINED:]).argmax(1) == labels[TRAINED:]
    return Run(name, losses, float(right.double().mean()))


def draw(reference: Run, runs: list[Run], title: str, path: Path) -> None:
    """Draw the losses, and how far each run is from PyTorch's."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for run in [reference, *runs]:
        left.plot(run.losses, lw=1, label=f"{run.name}: {run.accuracy:.1%}")
        # the reference takes a colour there too
        right.plot([] if run is reference else np.abs(np.subtract(run.losses, reference.losses)), lw=1)
    left.set(xlabel="step", ylabel="loss", yscale="log", title="Loss, and accuracy at the end")
    right.set(xlabel="step", yscale="log", title="Distance of the loss from PyTorch's float32")
    left.legend(fontsize=7)
    figure.suptitle(title)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Train in PyTorch and on every product and mode that its rules allow."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--product", action="append", help="series or SoC (default: 310p, 910, 910b, 910_93)")
    parser.add_argument("--picture", type=Path, default=Path("digits_training.png"))
    options = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    reference = train("PyTorch float32", options.epochs, None)
    print(f"{reference.name:45} loss {reference.losses[-1]:.6f}  accuracy {reference.accuracy:.1%}")
    runs: dict[tuple[float, ...], Run] = {}
    for product in options.product or ["310p", "910", "910b", "910_93"]:
        for mode in CubeMathType:
            name = f"{product} {mode.name}"
            try:
                run = train(name, options.epochs, ops.torch.emulate(product=product, cube_math_type=mode))
            except OperatorError as error:
                print(f"{name:45} refused: {error}")
                continue
            distance = max(np.abs(np.subtract(run.losses, reference.losses)))
            print(f"{run.name:45} loss {run.losses[-1]:.6f}  accuracy {run.accuracy:.1%}  up to {distance:.1e} apart")
            # products and modes that compute the same bits are one curve
            if same := runs.get(tuple(run.losses)):
                same.name += f"\n{name}"
            else:
                runs[tuple(run.losses)] = run
    accuracies = [run.accuracy for run in runs.values()]
    title = (
        f"{min(accuracies):.1%} to {max(accuracies):.1%} of unseen digits right after {options.epochs} epochs with "
        f"emulated gradients of any product and mode, {reference.accuracy:.1%} with PyTorch's own"
    )
    draw(reference, list(runs.values()), title, options.picture)
    print(f"{title}\n{options.picture}")


if __name__ == "__main__":
    main()
