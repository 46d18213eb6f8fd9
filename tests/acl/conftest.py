"""The libraries for C++ programs, built once; without a compiler the tests of this folder are skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from npu_sim.compilers import find_compiler
from npu_sim.errors import MissingExtraError
from ops.acl.build import CPP_STANDARD, Sdk, build_sdk, shared_python
from tests.acl.library import Library

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def sdk() -> Sdk:
    try:
        find_compiler()
        shared_python()
    except MissingExtraError as error:
        pytest.skip(str(error))
    return build_sdk()


@pytest.fixture(scope="module")
def lib(sdk):
    """Return the library with a device, for the tests of a file."""
    library = Library(sdk)
    assert library.aclrtSetDevice(0) == 0
    yield library
    assert library.aclrtResetDevice(0) == 0


@pytest.fixture(scope="session")
def compiled(sdk, tmp_path_factory):
    """Return a function that compiles a source and gives the program."""
    folder = tmp_path_factory.mktemp("programs")

    def build(source: Path, *options: str) -> Path:
        program = folder / source.stem
        find_compiler().run(
            [CPP_STANDARD, "-Wall", "-Wextra", "-Werror", *sdk.cflags, str(source), "-o", str(program), "-pthread",
             *options, *sdk.libs],
            source.name,
        )  # fmt: skip
        return program

    return build


@pytest.fixture(scope="session")
def started():
    """Return a function that runs a program, with variables, and gives what came of it."""

    def run(program: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("NPU_SIM_")}
        # the tests may run on sources that are not those installed for this Python
        own["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [own.get("PYTHONPATH")])])
        return subprocess.run(
            [str(program), *arguments], env={**own, **variables}, capture_output=True, text=True, timeout=300
        )

    return run


@pytest.fixture(scope="session")
def python_program():
    return [sys.executable]
