"""A tensor that a device left: an .npy file, raw bytes, or one of msprobe's folder.

msprobe writes, for each step and rank, a ``dump.json`` and a folder ``dump_tensor_data`` with a file for each tensor,
.npy (MindSpore) or .pt (PyTorch); the entry of a tensor in the ``data`` of dump.json has its ``shape`` and, as
``data_name``, its file (MindStudio Training Tools, msprobe, "dump.json file description").
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.lib.format as npy

from npu_sim.budget import reserve
from npu_sim.dtypes.formats import DTYPES
from npu_sim.errors import InputFileError, MissingExtraError
from ops.studies.npz import one_line, open_file, path_text, refuse

FORMATS = ("fp16", "bf16", "fp32")
_FOLDER = "dump_tensor_data"
_MOST_JSON_BYTES = 64 << 20
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_STORAGE = tuple(DTYPES[name].storage for name in FORMATS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """Where a tensor is.

    Attributes
    ----------
    path : str
        An .npy file, a file of raw elements in C order (.bin), or a folder with a dump.json.
    dtype : str or None
        "fp16", "bf16" or "fp32", of raw elements, which say nothing about themselves.
    tensor : str or None
        Name of the tensor in the folder; None: the only one of the right shape.
    """

    path: str
    dtype: str | None = None
    tensor: str | None = None


def load_dump(dump: Dump, shape: tuple[int, ...]) -> np.ndarray:
    """Return the tensor.

    Parameters
    ----------
    dump : Dump
        Where it is.
    shape : tuple of int
        What it must have. Raw elements, and a tensor with the same elements in one axis, are given it.

    Returns
    -------
    float16, bfloat16 or float32 array of ``shape``

    Raises
    ------
    InputFileError
        It cannot be read, is damaged, or is of another shape or type. Its text is one line.
    BudgetError
        It is larger than the memory budget.
    MissingExtraError
        A .pt file needs torch.
    """
    if dump.dtype is not None and dump.dtype not in FORMATS:
        raise InputFileError(f"dtype of a dump must be one of {', '.join(FORMATS)}, not {one_line(dump.dtype)}")
    path = Path(path_text(dump.path))
    is_folder = path.is_dir()
    if dump.tensor is not None and not is_folder:
        refuse(str(path), "tensor must be given with msprobe's folder, not with a file")
    if is_folder:
        path = _file_in(path, dump.tensor, shape)
    reserve(f"Dump {one_line(path.name)}", 2 * math.prod(shape) * 4)
    if path.suffix == ".npy":
        array = _npy(path, shape)
    elif path.suffix == ".pt":
        array = _torch(path)
    else:
        return _raw(path, shape, dump.dtype)
    if dump.dtype == "bf16" and array.dtype.itemsize == 2 and array.dtype.kind in "iuV":
        array = array.view(_BFLOAT16)
    if array.dtype.newbyteorder("=") not in _STORAGE:
        refuse(str(path), f"The tensor must be {', '.join(FORMATS)}, not {array.dtype}")
    if array.shape not in (shape, (math.prod(shape),)):
        refuse(str(path), f"The tensor must have the shape {shape}, not {array.shape}")
    return array.astype(array.dtype.newbyteorder("="), copy=False).reshape(shape)


def _npy(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Return the array of an .npy file, of which no more is read than ``shape`` needs."""
    with open_file(str(path)) as file:
        try:
            version = npy.read_magic(file)
            header = npy.read_array_header_1_0(file) if version == (1, 0) else npy.read_array_header_2_0(file)
        except Exception as error:  # whatever its parser of damaged text runs into
            refuse(str(path), f"The file must be a complete .npy array ({error})", error)
        found, is_fortran, dtype = header
        if dtype.hasobject or dtype.itemsize > 4:
            refuse(str(path), f"The tensor must be {', '.join(FORMATS)}, not {dtype}")
        if math.prod(found) != math.prod(shape):
            refuse(str(path), f"The tensor must have the shape {shape}, not {found}")
        content = file.read(math.prod(found) * dtype.itemsize + 1)
    if len(content) != math.prod(found) * dtype.itemsize:
        refuse(str(path), f"The file must hold the elements of its shape {found}, not fewer or more bytes")
    flat = np.frombuffer(content, dtype)
    if dtype == np.dtype("V2"):
        flat = flat.view(_BFLOAT16)
    return flat.reshape(found[::-1]).T if is_fortran else flat.reshape(found)


def _raw(path: Path, shape: tuple[int, ...], dtype: str | None) -> np.ndarray:
    if dtype is None:
        refuse(str(path), f"Raw elements must come with dtype={' or '.join(FORMATS)}")
    storage = DTYPES[dtype].storage
    expected = math.prod(shape) * storage.itemsize
    with open_file(str(path)) as file:
        content = file.read(expected + 1)
    if len(content) != expected:
        held = "more" if len(content) > expected else len(content)
        refuse(str(path), f"The file must hold the {expected} bytes of {dtype} {shape}, not {held}")
    return np.frombuffer(content, storage).reshape(shape)


def _torch(path: Path) -> np.ndarray:
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError(
            f"A .pt file must be read by torch, which is not installed ({path.name}); run: pip install torch"
        ) from error
    with open_file(str(path)) as file:
        try:
            tensor = torch.load(file, map_location="cpu", weights_only=True)
            array = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).detach().numpy()
        except Exception as error:  # whatever unpickling of damaged bytes runs into
            refuse(str(path), f"The file must hold one tensor ({type(error).__name__})", error)
    return array.view(_BFLOAT16) if tensor.dtype == torch.bfloat16 else array


def _file_in(folder: Path, tensor: str | None, shape: tuple[int, ...]) -> Path:
    """Return the file of a tensor in msprobe's folder of one step and rank."""
    found = dict(_tensors(folder))
    if tensor is None:
        names = [name for name, extents in found.items() if extents == list(shape)]
        if len(names) != 1:
            some = f"{len(names)}: {', '.join(names[:8])}" if names else "none"
            refuse(str(folder), f"tensor must be given unless exactly one has the shape {shape}, which has {some}")
        name = names[0]
    else:
        known = [name for name in found if tensor in (name, Path(name).stem)]
        if not known:
            some = ", ".join(list(found)[:8]) or "none"
            refuse(str(folder), f"tensor must be one of the folder's ({some}), not {tensor}")
        name = known[0]
    if Path(name).name != name:
        refuse(str(folder), f"data_name must be the name of a file, not {name}")
    return folder / _FOLDER / name


def _tensors(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield file name and shape of every tensor that dump.json names."""
    path = folder / "dump.json"
    with open_file(str(path)) as file:
        content = file.read(_MOST_JSON_BYTES + 1)
    if len(content) > _MOST_JSON_BYTES:
        refuse(str(path), f"The file must be at most {_MOST_JSON_BYTES} bytes, not more")
    try:
        waiting = [json.loads(content)["data"]]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        refuse(str(path), f"The file must be msprobe's, with 'data' ({type(error).__name__})", error)
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, dict) and isinstance(value.get("data_name"), str):
            yield value["data_name"], value.get("shape")
        elif isinstance(value, (dict, list)):
            waiting += list(value.values()) if isinstance(value, dict) else value
