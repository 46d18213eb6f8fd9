"""Tilings that host code writes into buffers, and the checked copies that it moves them with."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from tests.ascendc.compiler import host_program, require_compiler

require_compiler()

HOST = """
#include <cstdio>
#include "tiling/tiling_api.h"
namespace optiling {
BEGIN_TILING_DATA_DEF(Part)
  TILING_DATA_FIELD_DEF(uint8_t, shift);
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(PartOp, Part)
BEGIN_TILING_DATA_DEF(Whole)
  TILING_DATA_FIELD_DEF(uint16_t, few);
  TILING_DATA_FIELD_DEF(float, scale);
  TILING_DATA_FIELD_DEF_ARR(uint32_t, 3, parts);
  TILING_DATA_FIELD_DEF_STRUCT(Part, part);
  TILING_DATA_FIELD_DEF_STRUCT(SoftMaxTiling, rows);
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(WholeOp, Whole)
}
int main(int count, char**) {
  optiling::Whole tiling{};
  uint32_t parts[] = {5, 6, 7};
  tiling.set_few(3); tiling.set_scale(0.25f); tiling.set_parts(parts); tiling.part.set_shift(9);
  tiling.rows.srcM = 11;
  uint8_t buffer[256], copy[256];
  tiling.SaveToBuffer(buffer, count == 1 ? sizeof(optiling::Whole) : 16);
  if (memset_s(copy, sizeof copy, 0, sizeof copy) != EOK) return 2;
  if (memcpy_s(copy, sizeof copy, buffer, tiling.GetDataSize()) != EOK) return 3;
  if (memcpy_s(copy + 248, 8, buffer, 9) == EOK || copy[248]) return 4;
  if (memset_s(copy + 240, 8, 1, 9) == EOK || copy[247] != 1 || copy[248]) return 5;
  fwrite(copy, 1, tiling.GetDataSize(), stdout);
}
"""
WHOLE = np.dtype(
    {
        "names": ["few", "scale", "parts", "shift", "rows"],
        "formats": ["u2", "f4", ("u4", 3), "u1", ("u4", 16)],
        "offsets": [0, 4, 8, 24, 32],
        "itemsize": 96,
    }
)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    program = host_program(tmp_path_factory.mktemp("host"), HOST)
    return program


def test_a_buffer_holds_the_structure(host):
    run = subprocess.run([str(host)], capture_output=True, check=True)
    tiling = np.frombuffer(run.stdout, WHOLE)[0]
    assert len(run.stdout) == WHOLE.itemsize
    assert (tiling["few"], tiling["scale"], tiling["shift"], tiling["rows"][0]) == (3, 0.25, 9, 11)
    assert tiling["parts"].tolist() == [5, 6, 7]


def test_a_buffer_that_is_too_small_ends_the_host(host):
    run = subprocess.run([str(host), "small"], capture_output=True, text=True, check=False)
    assert run.returncode < 0
    assert "SaveToBuffer of Whole must be given a buffer of at least 96 bytes, not 16" in run.stderr


NAMED = """
#include <cstdio>
#include <new>
#include "register/tilingdata_base.h"
BEGIN_TILING_DATA_DEF(Inner)
  TILING_DATA_FIELD_DEF(uint8_t, buffer);
  TILING_DATA_FIELD_DEF(float, room);
END_TILING_DATA_DEF;
BEGIN_TILING_DATA_DEF(Named)
  TILING_DATA_FIELD_DEF(float, value);
  TILING_DATA_FIELD_DEF_ARR(uint16_t, 3, values);
  TILING_DATA_FIELD_DEF(uint64_t, left);
  TILING_DATA_FIELD_DEF_STRUCT(Inner, inner);
  TILING_DATA_FIELD_DEF_ARR(int32_t, 2, others);
END_TILING_DATA_DEF;
int main() {
  alignas(8) uint8_t place[sizeof(Named)], saved[sizeof(Named)];
  memset(place, 0xA5, sizeof place);
  Named* tiling = new (place) Named;  // as a local variable lies on a stack that was used before
  const uint16_t values[] = {4, 5, 6};
  tiling->set_value(1.5f); tiling->set_values(values); tiling->inner.set_buffer(7);
  tiling->SaveToBuffer(saved, sizeof saved);
  fwrite(saved, 1, sizeof saved, stdout);
  return !(tiling->get_value() == 1.5f && tiling->get_values()[2] == 6);
}
"""
LAID = np.dtype(
    {
        "names": ["value", "values", "left", "buffer", "room", "others"],
        "formats": ["f4", ("u2", 3), "u8", "u1", "f4", ("i4", 2)],
        "offsets": [0, 4, 16, 24, 28, 32],
        "itemsize": 40,
    }
)


def test_fields_have_any_name_and_are_0_until_they_are_set(tmp_path):
    program = host_program(tmp_path, NAMED)
    written = subprocess.run([program], check=True, capture_output=True).stdout
    wanted = np.zeros((), LAID)
    wanted["value"], wanted["values"], wanted["buffer"] = 1.5, (4, 5, 6), 7
    assert written == wanted.tobytes()  # what lies between fields too
