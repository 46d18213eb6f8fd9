"""Multiply the self-test's vectors on an Ascend device: python run_on_device.py vectors.npz results.npz [npu:0].

Needs NumPy, torch and torch_npu. Give the results to ``npu-sim selftest results.npz``. A type that the device refuses
is noted in the file; infinities and NaN are among the vectors.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
import torch_npu


def on_device(array: np.ndarray, bfloat16: bool, device: str) -> torch.Tensor:
    """Return a tensor on the device; bfloat16 comes as its bits, for which NumPy has no type."""
    tensor = torch.from_numpy(array)
    return (tensor.view(torch.bfloat16) if bfloat16 else tensor).to(device)


def main(vectors_path: str, results_path: str, device: str = "npu:0") -> None:
    """Write A B for each pair of matrices, computed by the device."""
    vectors = np.load(vectors_path)
    results: dict[str, Any] = {
        "digest": vectors["digest"],
        "device": np.array(str(torch_npu.npu.get_device_name())),
        "software": np.array(f"torch {torch.__version__}, torch_npu {torch_npu.__version__}"),
    }
    for tensors in ("fp16", "bf16", "fp32", "hf32"):
        torch_npu.npu.matmul.allow_hf32 = tensors == "hf32"
        bfloat16 = tensors == "bf16"
        try:
            a, b = (on_device(vectors[f"{tensors}.{name}"], bfloat16, device) for name in "ab")
            product = torch.matmul(a, b).cpu()
        except RuntimeError as error:
            results[f"{tensors}.error"] = np.array(" ".join(str(error).split())[:200])
            continue
        results[f"{tensors}.c"] = (product.view(torch.int16) if bfloat16 else product).numpy()
    np.savez_compressed(results_path, **results)
    sys.stderr.write(f"written: {results_path}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
