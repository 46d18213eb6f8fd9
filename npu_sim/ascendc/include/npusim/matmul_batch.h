// Products of several matrices by one call: where each of them lies.
//
// ASSUMED: of fewer matrices than the other operand has, each is multiplied by as many neighbours; matrices follow each
// other as single products do, whatever batchMode says of L1.
#pragma once
#include "npusim/matmul_cube.h"

namespace npusim {

// Axes of one operand in a tiling: B, S, N, G, D, of which S and D are those of a matrix.
struct Axes {
  int64_t b, s, n, g, d;
};
inline Axes axes_of(const int32_t* first) { return {first[0], first[1], first[2], first[3], first[4]}; }

// A matrix among others: where it begins, its rows, and how far they lie apart.
struct Among {
  int64_t at, rows, pitch;
};
inline Among among(LayoutMode layout, const Axes& x, int64_t index) {
  switch (layout) {
    case LayoutMode::BSNGD: {
      int64_t pitch = x.n * x.g * x.d, each = x.n * x.g;
      return {index / each * x.s * pitch + index % each * x.d, x.s, pitch};
    }
    case LayoutMode::SBNGD: return {index * x.d, x.s, x.b * x.n * x.g * x.d};
    default: return {index * x.s * x.d, x.s, x.d};  // BNGS1S2: one behind the other
  }
}

// What IterateBatch is told.
struct Batches {
  int64_t a = 0, b = 0;  // matrices of each operand
  int64_t stride_a = 0, stride_b = 0;
  int64_t count() const { return a > b ? a : b; }
};

inline void check_batches(Here here, const TCubeTiling& t, LayoutMode of_inputs, LayoutMode of_c, const Batches& all) {
  if (of_inputs == LayoutMode::NONE || of_c == LayoutMode::NONE)
    refuse(here, "IterateBatch must be of A, B and C with a LayoutMode other than NONE");
  if (all.a <= 0 || all.b <= 0 || (all.a % all.b && all.b % all.a))
    refuse(here, "IterateBatch batchA %lld and batchB %lld must be multiples of one another", (long long)all.a, (long long)all.b);
  if (of_inputs == LayoutMode::NORMAL) return;
  if (all.stride_a || all.stride_b) refuse(here, "IterateBatch with a matrixStride is modelled with LayoutMode::NORMAL");
  Axes a = axes_of(&t.ALayoutInfoB), b = axes_of(&t.BLayoutInfoB), c = axes_of(&t.CLayoutInfoB);
  if (a.s <= 0 || a.d <= 0 || b.s <= 0 || b.d <= 0 || c.s <= 0 || c.d <= 0)
    refuse(here, "IterateBatch must have the axes of its matrices in the tiling: SetALayout, SetBLayout, SetCLayout");
  if (c.g != (a.g > b.g ? a.g : b.g))
    refuse(here, "IterateBatch with CLayoutInfoG %lld must have the larger of ALayoutInfoG %lld and BLayoutInfoG %lld: sums "
           "over G are not modelled", (long long)c.g, (long long)a.g, (long long)b.g);
}

// The operand of one product, from that of all.
template <class T>
inline Stored<T> one_of(Stored<T> all, LayoutMode layout, const Axes& axes, int64_t index, int64_t stride) {
  constexpr int64_t c0 = C0<T>;
  int64_t at;
  if (layout == LayoutMode::NORMAL) {
    at = index * (stride ? stride : all.is_nz ? up(all.rows, 16) * up(all.columns, c0) : all.rows * all.columns);
  } else {
    Among one = among(layout, axes, index);
    all.rows = one.rows;
    all.columns = one.pitch;
    at = one.at;
  }
  all.gm = all.gm[uint64_t(at)];
  return all;
}

// Product number `index` of all, and where in C it begins.
template <class A, class B, class Bias>
inline int64_t take_one(Product<A, B, Bias>& p, const TCubeTiling& t, LayoutMode of_inputs, LayoutMode of_c, bool c_is_nz,
                        bool bias_of_each, const Batches& all, int64_t index) {
  int64_t in_a = index / (all.count() / all.a), in_b = index / (all.count() / all.b);
  p.a = one_of(p.a, of_inputs, axes_of(&t.ALayoutInfoB), in_a, all.stride_a);
  p.b = one_of(p.b, of_inputs, axes_of(&t.BLayoutInfoB), in_b, all.stride_b);
  if (p.has_bias && bias_of_each) p.bias = p.bias[uint64_t(index * p.n)];
  if (of_c == LayoutMode::NORMAL)
    return index * (c_is_nz ? up(p.c_rows, 16) * up(p.c_columns, 16) : p.c_rows * p.c_columns);
  Among one = among(of_c, axes_of(&t.CLayoutInfoB), index);
  p.c_rows = one.rows;
  p.c_columns = one.pitch;
  return one.at;
}
}  // namespace npusim
