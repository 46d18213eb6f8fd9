"""What host code is told of the product: cores, sizes, the system's workspace."""

from __future__ import annotations

from ctypes import byref, c_int64
from pathlib import Path

import pytest

from npu_sim.ascendc.device_facts import facts_of
from npu_sim.products import get_product, list_products
from npu_sim.products.platform_versions import SOC_VERSIONS
from tests.acl.library import Library

SOURCE = Path(__file__).parent / "programs" / "platform.cpp"
CORES = {"310": (2, 2, 0), "310p": (8, 8, 7), "910": (32, 32, 0), "910b": (24, 48, 0), "910_93": (24, 48, 0)}
"""AI cores or Cube cores, those that vector kernels run on, and those without a Cube beside them."""


def test_program_is_told_its_own_product(compiled, started):
    done = started(compiled(SOURCE), NPU_SIM_PRODUCT="310p")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "cores 8 8 8 7",
        "blocks 24 47 8",
        "sizes 65536 65536 262144 1048576 16777216 262144 24000000000 0 0",
        "workspace 2097152, version 2",
        "101: 0 8",
        "102: 0 8",
        "201: 0 7",
        "204: 0 262144",
        "302: 0 16777216",
        "301: 0 24000000000",
        "202: 207000 -1",
    ]


@pytest.mark.parametrize("product", ["910b", "910_93"])
def test_host_code_keeps_what_the_library_needs_of_ub_and_l1(compiled, started, product):
    done = started(compiled(SOURCE), NPU_SIM_PRODUCT=product)
    sizes = next(line for line in done.stdout.splitlines() if line.startswith("sizes")).split()
    assert (sizes[4], sizes[6]) == (str(512 * 1024 - 256), str(192 * 1024 - 256))
    assert "204: 0 196608" in done.stdout


@pytest.mark.parametrize("name", CORES)
def test_facts_of_each_series(name):
    facts = facts_of(get_product(name))
    assert tuple(facts[1:4]) == CORES[name]
    assert facts[-1] == (16 << 20 if facts[0] else 2 << 20)


def test_every_product_has_a_version():
    products = [get_product(name) for name in list_products()]
    assert {product.short_soc_version for product in products} == set(SOC_VERSIONS)


def test_split_cores_and_what_is_refused(sdk):
    lib, value = Library(sdk), c_int64()
    assert (lib.aclrtGetDeviceInfo(0, 201, byref(value)), value.value) == (0, 48)
    assert (lib.aclrtGetDeviceInfo(0, 102, byref(value)), value.value) == (0, 24)
    assert [lib.npu_sim_fact_of(fact) for fact in (0, 9, 14)] == [1, 196608, 16 << 20]
    for status, words, given in (
        (100000, "value must be an address, not a null pointer", (0, 201, None)),
        (107001, "deviceId must be 0, the one device there is, not 3", (3, 201, byref(value))),
        (207000, "attr must be one that is known of Ascend910B2, not 401", (0, 401, byref(value))),
    ):
        assert lib.aclrtGetDeviceInfo(*given) == status
        assert f"aclrtGetDeviceInfo: {words}" in lib.message()
