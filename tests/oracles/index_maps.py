"""Index maps: logical index to physical offset in elements, one function per format.

The bulk transforms and TransData are tested against these functions. All arguments are integers or integer arrays;
counts are extents in elements or blocks. No function checks its arguments.

Sources: asc-devkit ``docs/zh/guide``, appendix on data layout formats (NDC1HWC0, FRACTAL_NZ); ops-nn
``conv/conv3d_backprop_filter_v2/tests/assets/golden.py`` (merged groups of FRACTAL_Z and FRACTAL_Z_3D).
"""

from __future__ import annotations


def index_ndc1hwc0(n, c, d, h, w, c1_count, d_count, h_count, w_count, c0):
    """Return the offset of (n, c, d, h, w) in NDC1HWC0: storage (N, D, C1, H, W, C0), D before C1."""
    return ((((n * d_count + d) * c1_count + c // c0) * h_count + h) * w_count + w) * c0 + c % c0


def index_fractal_z_3d(
    co, ci, kd, kh, kw, cout_per_group, cin_per_group, mag, cin1_g, cout_g, kd_count, kh_count, kw_count, c0
):
    """Return the offset of weight element (co, ci, kd, kh, kw) in FRACTAL_Z_3D with merged groups.

    Storage (real_g, KD, cin1_g, KH, KW, cout_g, C0): ``mag`` neighbouring groups share one block-diagonal matrix of
    ``cout_g`` rows and ``cin1_g * C0`` columns. One group is the case ``mag = 1``.

    Parameters
    ----------
    co : int
        Output channel, over all groups.
    ci : int
        Input channel inside the group of ``co``.
    mag, cin1_g, cout_g : int
        `formats.WeightLayout.mag`, ``cin1_g``, ``cout_g``.
    """
    group = co // cout_per_group
    member = group % mag
    column = member * cin_per_group + ci
    row = member * cout_per_group + co % cout_per_group
    block = ((group // mag) * kd_count + kd) * cin1_g + column // c0
    return (((block * kh_count + kh) * kw_count + kw) * cout_g + row) * c0 + column % c0


def index_nz(m, n, row_count, n0):
    """Return the offset of (m, n) in columns of blocks, storage (N1, row_count, N0).

    FRACTAL_NZ has ``row_count = up(M, 16)``; tiles in L1 may have any ``row_count``.
    """
    return (n // n0 * row_count + m) * n0 + n % n0
