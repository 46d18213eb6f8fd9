"""Train a small CNN on handwritten digits and keep what every convolution saw in one training step.

The file written here is what ``npu-sim precision`` reads when it is called without a file. Running this script again
replaces it; it needs the extra ``capture`` (torch and scikit-learn)::

    pip install '.[capture]'
    python examples/capture_digits_cnn.py

Data: scikit-learn's ``load_digits``, 1,797 grey-scale images of 8 x 8 pixels with values 0..16 (a copy of the test set
of the UCI ML repository's "Optical Recognition of Handwritten Digits"). Everything is seeded and runs on one thread
with deterministic algorithms, so the same torch build writes the same arrays; another build may differ in the last
bits.

The captured arrays are those of float32 training: for each convolution the input ``x`` of the forward pass, the
gradient ``dy`` that arrives at its output in the backward pass, and torch's own float32 weight gradient for reference.
The keys of the file are described in ``examples/README.md``.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path

import numpy as np
import sklearn
import torch
from sklearn.datasets import load_digits
from torch import nn

SEED = 20240501
BATCH = 32
EPOCHS = 4
CAPTURE_EPOCH = 4
CAPTURE_STEP = 12
DEFAULT_OUTPUT = Path(__file__).resolve().parent.parent / "ops" / "studies" / "data" / "digits_cnn_step.npz"


class DigitsNet(nn.Module):
    """Six convolutions of different kinds, 8 x 8 pixels in, ten classes out."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1)
        self.down = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.pointwise = nn.Conv2d(32, 48, 1)
        self.dilated = nn.Conv2d(48, 32, 3, padding=2, dilation=2)
        self.grouped = nn.Conv2d(32, 40, (3, 2), stride=(1, 2), padding=(1, 0), groups=4)
        self.classify = nn.Linear(40 * 4 * 2, 10)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits [N, 10] of images [N, 1, 8, 8]."""
        x = torch.relu(self.stem(images))
        x = torch.relu(self.down(x))
        x = torch.relu(self.pointwise(self.depthwise(x)))
        x = torch.relu(self.dilated(x))
        x = torch.relu(self.grouped(x))
        return self.classify(x.flatten(1))


def capture_step(model: DigitsNet, images: torch.Tensor, labels: torch.Tensor) -> tuple[float, dict[str, np.ndarray]]:
    """Run one forward and backward pass and return the loss and the arrays of every convolution."""
    arrays: dict[str, np.ndarray] = {}
    handles = []
    for name, module in model.named_modules():
        if not isinstance(module, nn.Conv2d):
            continue

        def keep_gradient(gradient: torch.Tensor, name: str) -> None:
            arrays[f"{name}.dy"] = gradient.numpy().copy()

        def keep_input(_module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor, name: str) -> None:
            arrays[f"{name}.x"] = inputs[0].detach().numpy().copy()
            output.register_hook(partial(keep_gradient, name=name))

        handles.append(module.register_forward_hook(partial(keep_input, name=name)))
    model.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    for handle in handles:
        handle.remove()
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            arrays[f"{name}.grad_weight"] = module.weight.grad.detach().numpy().copy()
            arrays[f"{name}.weight_shape"] = np.array(module.weight.shape, np.int64)
            arrays[f"{name}.stride"] = np.array(module.stride, np.int64)
            arrays[f"{name}.padding"] = np.array(module.padding, np.int64)
            arrays[f"{name}.dilation"] = np.array(module.dilation, np.int64)
            arrays[f"{name}.groups"] = np.array(module.groups, np.int64)
    return float(loss.detach()), arrays


def train_and_capture() -> tuple[dict[str, np.ndarray], dict[str, object]]:
    """Train with SGD and return the arrays and the metadata of the captured step."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    digits = load_digits()
    images = torch.from_numpy((digits.images / 16.0).astype(np.float32))[:, None]
    labels = torch.from_numpy(digits.target.astype(np.int64))
    model = DigitsNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(1, EPOCHS + 1):
        order = torch.randperm(len(images))
        for step, start in enumerate(range(0, len(images) - BATCH + 1, BATCH), start=1):
            batch = order[start : start + BATCH]
            loss, arrays = capture_step(model, images[batch], labels[batch])
            if (epoch, step) == (CAPTURE_EPOCH, CAPTURE_STEP):
                return arrays, {
                    "dataset": "scikit-learn load_digits (UCI Optical Recognition of Handwritten Digits)",
                    "network": "DigitsNet, six convolutions and one linear layer",
                    "optimizer": "SGD, learning rate 0.02, momentum 0.9, cross entropy averaged over the batch",
                    "batch": BATCH,
                    "epoch": epoch,
                    "step": step,
                    "loss": loss,
                    "seed": SEED,
                    "torch": torch.__version__.split("+")[0],
                    "scikit-learn": sklearn.__version__,
                    "script": "examples/capture_digits_cnn.py",
                }
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.4f}")
    raise SystemExit("The step to capture lies behind the end of the training")


def main() -> None:
    """Parse the command line, train, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help="file to write (default: %(default)s)")
    output = parser.parse_args().output
    arrays, metadata = train_and_capture()
    np.savez_compressed(output, metadata=np.array(json.dumps(metadata)), **arrays)
    print(f"{output}: {output.stat().st_size:,} bytes, loss {metadata['loss']:.4f}")
    for name, array in arrays.items():
        if name.endswith((".x", ".dy")):
            print(f"  {name:14} {array.shape!s:18} max |.| {np.abs(array).max():.3e}  zeros {np.mean(array == 0):.0%}")


if __name__ == "__main__":
    main()
