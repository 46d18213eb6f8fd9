"""Register transposes against plain loops, and their Python twins."""

import numpy as np
import pytest

from npu_sim.layouts import shuffle_jit
from npu_sim.layouts.shuffle_jit import copy_lanes, transpose_tile


def naive_transpose(lanes, src, src_at, src_step, rows, dst, dst_at, dst_step, columns):
    before = src.copy()
    for j in range(min(columns, lanes)):
        for i in range(lanes):
            dst[dst_at + j * dst_step + i] = before[src_at + i * src_step + j] if i < rows else 0


@pytest.mark.parametrize("words", [np.uint16, np.uint32])
@pytest.mark.parametrize("lanes", [8, 16])
def test_transpose_tile_every_row_and_column_count_matches_loops(lanes, words):
    rng = np.random.default_rng(0)
    src = rng.integers(1, 2**16, 1200).astype(words)
    twin = shuffle_jit._transpose_twin(lanes)
    for rows in (*range(1, lanes + 1), 40):
        for columns in (*range(1, lanes + 1), 40):
            # a step below `lanes` makes the stores overlap: the later column wins
            for dst_step in (lanes, lanes + 5, 3):
                results = [np.full(600, 7, words) for _ in range(3)]
                geometry = (5, lanes + 21, rows), (3, dst_step, columns)
                transpose_tile(lanes, src, *geometry[0], results[0], *geometry[1])
                naive_transpose(lanes, src, *geometry[0], results[1], *geometry[1])
                twin(src, *geometry[0], results[2], *geometry[1])
                assert np.array_equal(results[0], results[1])
                assert np.array_equal(results[2], results[1])


def test_transpose_tile_reads_only_the_rows_there_are():
    # The array ends with the third row; a read of a fourth would leave it, and the twin refuses that.
    src = np.arange(3 * 16, dtype=np.uint16)
    dst = np.empty(256, np.uint16)
    transpose_tile(16, src, 0, 16, 3, dst, 0, 16, 16)
    shuffle_jit._transpose_twin(16)(src, 0, 16, 3, dst, 0, 16, 16)
    assert np.array_equal(dst.reshape(16, 16)[:, :3], src.reshape(3, 16).T)
    with pytest.raises(IndexError, match=r"^Vector access must be inside \[0, 48\), not \[48, 64\)$"):
        shuffle_jit._transpose_twin(16)(src, 0, 16, 4, dst, 0, 16, 16)


@pytest.mark.parametrize("words", [np.uint16, np.uint32])
@pytest.mark.parametrize("lanes", [8, 16])
def test_copy_lanes_copies_exactly_the_lanes(lanes, words):
    src = np.arange(1, 60, dtype=words)
    expected = np.zeros(50, words)
    expected[9 : 9 + lanes] = src[20 : 20 + lanes]
    for copy in (lambda *args: copy_lanes(lanes, *args), shuffle_jit._copy_twin(lanes)):
        dst = np.zeros(50, words)
        copy(src, 20, dst, 9)
        assert np.array_equal(dst, expected)
