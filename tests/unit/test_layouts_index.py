"""Index maps against a second derivation: pad, split axes and transpose with NumPy; and the documented examples."""

from itertools import product

import numpy as np
import pytest

from npu_sim.layouts.formats import WeightLayout
from tests.oracles.index_maps import index_fractal_z_3d, index_ndc1hwc0, index_nz


def padded(x: np.ndarray, axis: int, multiple: int) -> np.ndarray:
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, -x.shape[axis] % multiple)
    return np.pad(x, widths)


def labels(*shape: int) -> np.ndarray:
    """Distinct positive numbers, so that 0 is padding."""
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.int64).reshape(shape)


def naive_ndc1hwc0(x: np.ndarray, c0: int) -> np.ndarray:
    blocks = padded(x, 1, c0)
    n, c, d, h, w = blocks.shape
    return blocks.reshape(n, c // c0, c0, d, h, w).transpose(0, 3, 1, 4, 5, 2)


def naive_nz(x: np.ndarray, n0: int) -> np.ndarray:
    blocks = padded(padded(x, 0, 16), 1, n0)
    m, n = blocks.shape
    return blocks.reshape(m // 16, 16, n // n0, n0).transpose(2, 0, 1, 3)


def naive_fractal_z_3d(weight: np.ndarray, groups: int, c0: int, mag: int) -> np.ndarray:
    """Build each merged group as an explicit block-diagonal matrix, then cut it into blocks."""
    cout, cin_g, kd, kh, kw = weight.shape
    cout_g = cout // groups
    merged_groups = []
    for first in range(0, groups, mag):
        matrix = np.zeros((mag * cout_g, mag * cin_g, kd, kh, kw), weight.dtype)
        for member in range(min(mag, groups - first)):
            rows = weight[(first + member) * cout_g : (first + member + 1) * cout_g]
            o, i = member * cout_g, member * cin_g
            matrix[o : o + cout_g, i : i + cin_g] = rows
        matrix = padded(padded(matrix, 0, 16), 1, c0)
        o, i = matrix.shape[:2]
        merged_groups.append(matrix.reshape(o, i // c0, c0, kd, kh, kw).transpose(3, 1, 4, 5, 0, 2))
    return np.stack(merged_groups)


def check_map(x: np.ndarray, storage: np.ndarray, offsets: np.ndarray) -> None:
    """``offsets`` puts every element of ``x`` where ``storage`` has it, and the rest of ``storage`` is 0."""
    flat = storage.reshape(-1)
    assert np.array_equal(flat[offsets], x)
    assert np.count_nonzero(flat) == x.size


def test_index_documented_examples():
    assert index_ndc1hwc0(1, 17, 2, 3, 4, 2, 3, 4, 5, 16) == 3825
    assert index_ndc1hwc0(1, 17, 2, 3, 4, 3, 3, 4, 5, 8) == 2873
    assert index_fractal_z_3d(17, 18, 0, 1, 2, 20, 20, 1, 2, 32, 1, 2, 3, 16) == 5906
    assert index_fractal_z_3d(9, 2, 0, 0, 0, 6, 4, 2, 1, 16, 1, 1, 1, 16) == 150
    assert index_fractal_z_3d(17, 18, 1, 1, 2, 20, 20, 1, 2, 32, 2, 2, 3, 16) == 12050
    assert index_nz(17, 18, 32, 16) == 786


@pytest.mark.parametrize("c0", [4, 8, 16])
def test_index_ndc1hwc0_all_small_shapes_match_reshape(c0):
    for n, c, d, h, w in product((1, 2), range(1, 2 * c0 + 2), (1, 2, 3), (1, 2), (1, 3)):
        x = labels(n, c, d, h, w)
        axes = np.indices(x.shape)
        c1 = -(-c // c0)
        storage = naive_ndc1hwc0(x, c0)
        assert storage.shape == (n, d, c1, h, w, c0)
        check_map(x, storage, index_ndc1hwc0(*axes, c1, d, h, w, c0))


@pytest.mark.parametrize("c0", [8, 16])
def test_index_fractal_z_3d_all_small_shapes_match_block_diagonal(c0):
    channels = (1, 2, 3, 5, 8, 12, 16, 17)
    for groups, cout_g, cin_g in product((1, 2, 3, 4, 7, 17), channels, channels):
        kd, kh, kw = (1, 1, 1) if groups > 4 else (2, 1, 3) if cout_g < 8 else (1, 2, 2)
        layout = WeightLayout(cout=groups * cout_g, cin_per_group=cin_g, groups=groups, kd=kd, kh=kh, kw=kw, c0=c0)
        x = labels(*layout.logical_shape)
        axes = np.indices(x.shape)
        storage = naive_fractal_z_3d(x, groups, c0, layout.mag)
        assert storage.size == layout.storage_elems
        merged = (cout_g, cin_g, layout.mag, layout.cin1_g, layout.cout_g)
        check_map(x, storage, index_fractal_z_3d(*axes, *merged, kd, kh, kw, c0))


@pytest.mark.parametrize("n0", [8, 16])
def test_index_nz_all_small_shapes_match_reshape(n0):
    for m, n in product(range(1, 35), range(1, 35)):
        x = labels(m, n)
        check_map(x, naive_nz(x, n0), index_nz(*np.indices(x.shape), -(-m // 16) * 16, n0))


def test_group_formula_of_weight_gradient_operator_matches_index():
    # The operator names the result [g, column, m, n0]; C0 = 16.
    for groups, cin, cout in ((4, 20, 56), (6, 48, 24), (17, 17, 34), (3, 48, 48)):
        kd, kh, kw = 2, 1, 2
        cg, og = cin // groups, cout // groups
        layout = WeightLayout(cout=cout, cin_per_group=cg, groups=groups, kd=kd, kh=kh, kw=kw, c0=16)
        result = np.arange(layout.storage_elems).reshape(layout.result_shape)
        for co, ci, d, y, z in np.ndindex(cout, cg, kd, kh, kw):
            j = co // og
            g = j // layout.mag
            m = co - g * layout.mag * og
            n = j * cg + ci - g * layout.mag * cg
            expected = result[g, ((d * layout.cin1_g + n // 16) * kh + y) * kw + z, m, n % 16]
            args = (og, cg, layout.mag, layout.cin1_g, layout.cout_g, kd, kh, kw, 16)
            assert index_fractal_z_3d(co, ci, d, y, z, *args) == expected
