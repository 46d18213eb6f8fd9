"""Wild command lines: options and files of every command with values nobody expects."""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.cases import small_kernel
from tests.cases.damaged_inputs import INPUTS
from tests.cases.wild_arguments import EDGES, WORDS

_OURS = f'File "{Path(__file__).parents[2]}'
"""What a traceback shows when an exception of ours reached the user."""
_SHAPE = {
    "--x": "1,16,8,8", "--weight": "16,16,3,3", "--stride": "1", "--padding": "1", "--dilation": "1", "--groups": "1",
    "--product": "910b", "--cube-math-type": "1", "--dtype": "fp16",
}  # fmt: skip
_STUDY = {"": "layers.npz", "--product": "910b", "--cube-math-type": "1", "--layer": "a", "--gradient": "dw"}
_GOOD: Mapping[str, Mapping[str, str]] = {
    "products": {"": "910b", "--about": "matmul", "--json": "-"},
    "precision": _STUDY | {"--jobs": "1", "--threads": "1", "--standard": "mixed-tolerance", "--seed": "3"},
    "compare": {
        "": "layers.npz", "--left": "product=910b", "--right": "product=310p,cube_math_type=1", "--layer": "a",
        "--gradient": "dw", "--dtype": "fp16", "--threads": "1",
    },
    "selftest": {"": "results.npz", "--json": "-"},
    "program": {"": "kept.program", "--call": "0", "--core": "0", "--rows": "3", "--json": "-"},
    "judge": {
        "": "kept.program", "--golden": "y=golden.npy", "--budget": "2", "--call": "0", "--product": "910b",
        "--max-findings": "3", "--order": "program", "--core-order": "1", "--json": "-",
    },
    "diverge": {"": "kept.program", "--golden": "y=golden.npy", "--budget": "2", "--call": "0", "--chain": "3"},
    "run": {"": "kernel.py", "--product": "910b", "--order": "late", "--core-order": "1"},
    "check": {"": "kept.program", "--max-findings": "3", "--core": "0", "-t": "racecheck", "--explain": "Read1"},
    "perf": {"": "kept.program", "--product": "910b", "--trace": "t.json"},
    "cc": {"": "none.cpp", "-o": "a.out", "--product": "910b"},
}  # fmt: skip
"""Of each command, options that are right; "" is the file."""
_MORE = ("--json", "--table", "--html", "--picture", "--results", "--dump", "--save", "--write", "--nonsense", "--yes")
_FILES = (
    "layers.npz",
    "kept.program",
    "kernel.py",
    "golden.npy",
    "results.npz",
    "results.json",
    "cases.json",
    "none.py",
    ".",
)


@cache
def _files() -> tuple[tuple[str, bytes], ...]:
    """Return the files that lines may name, made once."""
    from ops.cli.main import main

    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
        folder = Path(name)
        shutil.copy(small_kernel.__file__, folder / "kernel.py")
        if main(["program", str(folder / "kernel.py"), "--save", str(folder / "kept.program")]):
            raise AssertionError("the kernel must be kept")
        np.save(folder / "golden.npy", np.full(64, 3, np.float16))
        arrays: dict[str, Any] = {
            "x": rng.normal(size=(1, 2, 4, 4)).astype(np.float16), "dy": np.ones((1, 2, 3, 3), np.float16),
            "weight_shape": np.array([2, 2, 2, 2]), "stride": np.array([1, 1]), "padding": np.array([0, 0]),
            "dilation": np.array([1, 1]), "groups": np.array(1),
        }  # fmt: skip
        np.savez(folder / "layers.npz", **{f"a.{role}": array for role, array in arrays.items()})
        found = [(path.name, path.read_bytes()) for path in folder.iterdir()]
    read = (("self-test", "results.npz"), ("ATK cases", "cases.json"))
    return (*found, *((file, INPUTS[reader][1](rng)) for reader, file in read))


def _wild_word(rng: np.random.Generator, like: str) -> str:
    edge = EDGES[int(rng.integers(len(EDGES) - 1))]
    return str(rng.choice((*WORDS, *_FILES, f"{edge}", f"{-edge}", like, f"1,{edge},8,8", f"{like}={edge}", "1e999")))


def run_line(arguments: Sequence[str], files: Sequence[tuple[str, bytes]] = ()) -> int:
    """Run ``npu-sim`` in a folder of its own; a refusal is one line and code 2.

    A script that fails is answered by its own traceback, which names no file of ours.

    Raises
    ------
    AssertionError
        It ended otherwise.
    """
    from ops.cli.main import main

    kept = [argument for argument in arguments if "\0" not in argument]
    out, err = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, data in files:
            Path(name).write_bytes(data)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(kept)
    said = err.getvalue()
    lines = [line for line in said.splitlines() if "error" in line]
    if code not in (0, 1, 2) or (code == 2 and len(lines) != 1) or _OURS in said:
        raise AssertionError(f"{code} {str(arguments)[:300]} {said[-300:]}")
    return code


def call_line(rng: np.random.Generator) -> object:
    """Run ``npu-sim perf`` or ``check`` of a call given by its shape, with wild arguments."""
    given = dict(_SHAPE)
    others = ("--model", "--batch", "--layer", "--json", "--trace", "--cores", "--nonsense", "FILE")
    for _ in range(int(rng.choice((1, 1, 2, 3)))):
        name = str(rng.choice((*_SHAPE, *others)))
        edge = EDGES[int(rng.integers(len(EDGES) - 1))]
        given[name] = str(
            rng.choice(
                (*WORDS, f"{edge}", f"1,{edge},8,8", f"{edge},16,3,3", f"{-edge}", "1,16,8", "1,16,2,2,8,8", ".")
            )
        )
        if rng.random() < 0.2:
            del given[name]
    arguments = [str(rng.choice(("perf", "check")))]
    for name, value in given.items():
        arguments += [value] if name == "FILE" else [name, value]
    return run_line(arguments)


def other_line(rng: np.random.Generator) -> object:
    """Run any of the other commands on small files, with wild options and files."""
    command = str(rng.choice(list(_GOOD)))
    given = dict(_GOOD[command])
    for name in list(given)[1:]:
        if rng.random() < 0.4:
            del given[name]
    for _ in range(int(rng.choice((1, 1, 2)))):
        name = str(rng.choice((*_GOOD[command], *_GOOD[command], *_MORE)))
        given[name] = _wild_word(rng, _GOOD[command].get(name, ""))
    arguments = [command]
    for name, value in given.items():
        arguments += [name, value] if name else [value]
    return run_line(arguments, _files())
