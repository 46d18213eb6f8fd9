"""Index maps: logical index to physical offset in elements, one function per format.

The bulk transforms and TransData are tested against these functions. All arguments are integers or integer arrays;
counts are extents in elements or blocks. No function checks its arguments.

Sources: asc-devkit ``docs/zh/guide``, appendix on data layout formats (NC1HWC0, NDC1HWC0, FRACTAL_Z, FRACTAL_NZ);
asc-devkit ``docs/zh/api/SIMD-API``, matrix fractal formats (L0A, L0B, L0C); ops-nn
``conv/conv3d_backprop_filter_v2/tests/assets/golden.py`` (merged groups of FRACTAL_Z and FRACTAL_Z_3D).
"""

from __future__ import annotations


def index_nchw(n, c, h, w, c_count, h_count, w_count):
    """Return the offset of (n, c, h, w) in row-major NCHW."""
    return ((n * c_count + c) * h_count + h) * w_count + w


def index_ncdhw(n, c, d, h, w, c_count, d_count, h_count, w_count):
    """Return the offset of (n, c, d, h, w) in row-major NCDHW; of a weight (co, ci, kd, kh, kw) alike."""
    return (((n * c_count + c) * d_count + d) * h_count + h) * w_count + w


def index_nc1hwc0(n, c, h, w, c1_count, h_count, w_count, c0):
    """Return the offset of (n, c, h, w) in NC1HWC0: storage (N, C1, H, W, C0)."""
    return (((n * c1_count + c // c0) * h_count + h) * w_count + w) * c0 + c % c0


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


def index_fractal_z(co, ci, kh, kw, cout_per_group, cin_per_group, mag, cin1_g, cout_g, kh_count, kw_count, c0):
    """Return the offset of weight element (co, ci, kh, kw) in FRACTAL_Z; as `index_fractal_z_3d` without depth."""
    return index_fractal_z_3d(
        co, ci, 0, kh, kw, cout_per_group, cin_per_group, mag, cin1_g, cout_g, 1, kh_count, kw_count, c0
    )


def index_nz(m, n, row_count, n0):
    """Return the offset of (m, n) in columns of blocks, storage (N1, row_count, N0).

    FRACTAL_NZ has ``row_count = up(M, 16)``; tiles in L1 may have any ``row_count``.
    """
    return (n // n0 * row_count + m) * n0 + n % n0


def index_l0a(m, k, k1_count, k0):
    """Return the offset of A[m, k] in L0A, order zZ: (M1, K1, 16, K0). ``k1_count`` from `formats.l0_k1`."""
    return ((m // 16 * k1_count + k // k0) * 16 + m % 16) * k0 + k % k0


def index_l0b(k, n, n1_count, k0):
    """Return the offset of B[k, n] in L0B, order nZ: (K1, N1, 16, K0)."""
    return ((k // k0 * n1_count + n // 16) * 16 + n % 16) * k0 + k % k0


def index_l0c(m, n, m1_count):
    """Return the offset of C[m, n] in L0C, order zN: (N1, M1, 16, 16)."""
    return ((n // 16 * m1_count + m // 16) * 16 + m % 16) * 16 + n % 16


def l0a_carrier(m, k, k1_count, k0):
    """Return the carrier of A[m, k]: the fractals in the order of L0A, each k-major (`npu_sim.memory.core`)."""
    return 256 * (m // 16 * k1_count + k // k0) + 16 * (k % k0) + m % 16


def l0b_carrier(k, n, n1_count, k0):
    """Return the carrier of B[k, n]: the fractals in the order of L0B, each k-major (`npu_sim.memory.core`)."""
    return 256 * (k // k0 * n1_count + n // 16) + 16 * (k % k0) + n % 16


def result_index(m, n, kd, cin1_g, taps, cout_g, c0):
    """Return where C[m, n] of depth tap ``kd`` of a weight-gradient GEMM lies inside one real group of FRACTAL_Z_3D.

    M is the output channel and N = (c1, kh, kw, c0): the block column ``n // c0`` is a column of ``cout_g * c0``
    elements, so the matrix leaves L0C without any further permutation.

    Parameters
    ----------
    taps : int
        KH * KW.
    """
    return ((kd * cin1_g * taps + n // c0) * cout_g + m) * c0 + n % c0
