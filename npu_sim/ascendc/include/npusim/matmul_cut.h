// How a product is cut for cores and into base blocks: the rule of host tilings (matmul_tiling.h).
//
// Extents here are numbers of fractals: of 16 rows of A, of 16 columns of B, of 32 bytes of K. The rule is our own, made
// to give the numbers that the vendor's public host library gives for products of half: what is compared, in which order,
// is read from there, the rest is ASSUMED, as are all numbers of other types than half and of fractals in memory.
// `npu_sim.ascendc.matmul_cut` is the same rule in Python.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace matmul_tiling {

inline constexpr int64_t up(int64_t value, int64_t by) { return (value + by - 1) / by * by; }
inline constexpr int64_t parts(int64_t value, int64_t by) { return (value + by - 1) / by; }

namespace rule {

using Sizes = std::vector<int64_t>;
constexpr int64_t WIDE = 16, HIGH = 8, DEEP = 4;  // a block of 256 columns, 128 rows and 64 of K

struct Product {
  int64_t m, n, k;
  bool a_turned = false, b_turned = false, cuts_k = false;
};
struct Cut {
  int64_t m, n, k;  // of a core
  int64_t rows, columns, depths;  // of cores
};

inline Sizes descending(Sizes sizes) {
  std::sort(sizes.rbegin(), sizes.rend());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

// The power of two that an extent is cut like, too; of a power of two itself the largest.
inline int64_t rounded(int64_t extent) {
  if (extent < 16) return extent;
  int64_t power = 32;
  while (power < 2048 && !(power / 2 < extent && extent <= power)) power *= 2;
  return power;
}

// The most divisors that a divisor of `extent` between two numbers has.
inline int64_t richest(int64_t extent, int64_t from, int64_t to) {
  int64_t most = 0;
  for (int64_t one = from; one <= to && one <= extent; one++) {
    if (extent % one) continue;
    int64_t count = 0;
    for (int64_t i = 1; i <= one; i++) count += one % i == 0;
    most = std::max(most, count);
  }
  return most;
}
// Extents with few divisors have few blocks that fit.
inline bool is_divisible(int64_t extent) {
  if (extent <= 8) return true;
  int64_t small = richest(extent, 1, 64);
  return small > 2 && (extent <= 128 || small + richest(extent, 65, 128) > 4);
}
// Of a core when an extent is cut into so many: more or less than a part of it until that has divisors.
inline int64_t part_of(int64_t extent, int64_t alike, int64_t count) {
  if (count == 1 && is_divisible(extent)) return extent;
  int64_t part = parts(extent, count), end = parts(alike, count);
  while (part != end && !is_divisible(part)) part += part < end ? 1 : -1;
  return part;
}

// Numbers that an extent may be cut into: divisors of it, of its power of two and of the cores, and those nearest to
// square parts.
inline Sizes counts(int64_t extent, int64_t alike, int64_t other, int64_t cores, bool is_best_known) {
  Sizes all;
  // more parts of K than it has count as none
  for (int64_t i = 1; i <= (is_best_known ? std::min(cores, extent) : cores); i++)
    if (extent % i == 0 || alike % i == 0 || cores % i == 0) all.push_back(i);
  if (is_best_known && cores > 1) {
    auto root = [&](int64_t a, int64_t b) {  // of cores * a / b, rounded up
      int64_t i = 1;
      while (i * i * b < cores * a) i++;
      return i;
    };
    all.push_back(root(extent, other));
    all.push_back(cores / root(other, extent));
  }
  all = descending(all);
  std::reverse(all.begin(), all.end());
  return all;
}

// Blocks of L0 that a core needs for its part, at about their largest.
inline int64_t turns(int64_t m, int64_t n, int64_t k) {
  int64_t wide = std::min<int64_t>(WIDE, n), high = std::min({m, 128 / wide, int64_t(64)});
  wide = std::min({n, 128 / high, int64_t(64)});
  high = std::min({m, 128 / wide, int64_t(64)});
  return parts(m, high) * parts(n, wide) * parts(k, std::max<int64_t>(1, std::min({64 / high, 64 / wide, k})));
}

// Fractals of A and B that all cores together load, by what of a core's part stays in L1.
inline int64_t loads(const Product& p, const Cut& c, int64_t l1_bytes) {
  int64_t line = c.k * 512, wide = std::min<int64_t>(WIDE, c.n), high = std::min({WIDE, c.m, 128 / wide});
  int64_t deep = std::min({64 / high, 64 / wide, c.k}) * 512;
  auto fits = [&](int64_t bytes) { return bytes <= l1_bytes; };
  int64_t all_a = p.m * c.columns, all_b = p.n * c.rows;
  if (fits((c.m + c.n) * line) || fits((c.m + 2 * wide) * line) || fits((c.n + 2 * high) * line)) return all_a + all_b;
  if (!fits(2 * (wide * line + high * deep)) && !fits(2 * (high * line + wide * deep)))
    return p.m * parts(p.n, wide) + p.n * parts(p.m, high);
  if (fits(2 * (wide + high) * line)) {
    int64_t rows = parts(l1_bytes - 2 * wide * line, 2 * line * high) * high;
    int64_t columns = parts(l1_bytes - 2 * high * line, 2 * line * wide) * wide;
    return std::min(all_a + p.n * parts(p.m, rows), all_b + p.m * parts(p.n, columns));
  }
  int64_t least = INT64_MAX;
  if (fits(c.m * line + 2 * wide * deep) || fits(2 * (high * line + wide * deep))) least = all_a + p.n * parts(p.m, high);
  if (fits(c.n * line + 2 * high * deep) || fits(2 * (wide * line + high * deep)))
    least = std::min(least, all_b + p.m * parts(p.n, wide));
  return least;
}

// One cut after the other, the better one kept: wide rows of B (and of a turned A) in memory first, then few turns, then
// many cores, then few loads.
inline Cut cut(const Product& p, int64_t cores, int64_t l1_bytes) {
  auto alike = [&](int64_t extent) { return p.cuts_k ? extent : rounded(extent); };
  if (cores <= 1)
    return {part_of(p.m, rounded(p.m), 1), part_of(p.n, rounded(p.n), 1), part_of(p.k, rounded(p.k), 1), 1, 1, 1};
  if (p.m * p.n <= cores && p.m * p.k <= 128 && p.n * p.k <= 128 && p.m * p.n <= 128) {
    auto whole = [](int64_t extent) { return extent <= 32 ? extent : parts(rounded(extent), rounded(extent) / 32); };
    int64_t depth = p.cuts_k && p.k > 32 ? 2 : 1;
    while (depth <= cores && p.k % depth) depth++;
    if (depth > cores) depth = 1;
    return {whole(p.m), whole(p.n), p.k / depth, parts(p.m, whole(p.m)), parts(p.n, whole(p.n)), depth};
  }
  Sizes depths{1};
  if (p.cuts_k) depths = counts(p.k, p.k, 1, cores, false);
  Cut best{p.m, p.n, p.k, 1, 1, 1};
  int64_t best_turns = INT64_MAX, best_load = INT64_MAX, best_cores = 1;
  bool is_wide = false;  // the best one so far
  for (int64_t columns : counts(p.n, alike(p.n), p.m, cores, true))
    for (int64_t rows : counts(p.m, alike(p.m), p.n, cores, true))
      for (int64_t depth : depths) {
        int64_t count = rows * columns * depth;
        if (count <= 0 || count > cores) continue;
        Cut one{parts(p.m, rows), parts(p.n, columns), p.k / depth, rows, columns, depth};
        bool may_be_wide = (p.b_turned || p.n < WIDE || one.n >= WIDE) && (!p.a_turned || p.m < WIDE || one.m >= WIDE);
        bool counts_width = !p.b_turned || p.a_turned;
        if (counts_width && is_wide && !may_be_wide) continue;
        int64_t load = loads(p, one, l1_bytes), number = turns(one.m, one.n, one.k);
        if (p.cuts_k && load != INT64_MAX) load *= one.k;
        bool wider = counts_width && !is_wide && may_be_wide;
        bool better = wider || number < best_turns || (number == best_turns && count > best_cores) ||
                      (count == best_cores && load < best_load) ||
                      (count == best_cores && load == best_load && rows * columns > best.rows * best.columns);
        if (!better) continue;
        best = one;
        best_turns = number;
        best_load = load;
        best_cores = count;
        is_wide = (p.b_turned || one.n >= WIDE) && (!p.a_turned || one.m >= WIDE) && count > 1;
      }
  int64_t m = part_of(p.m, alike(p.m), best.rows), n = part_of(p.n, alike(p.n), best.columns);
  if (parts(p.m, m) * parts(p.n, n) * best.depths > cores) m = best.m, n = best.n;
  return {m, n, parts(p.k, best.depths), parts(p.m, m), parts(p.n, n), best.depths};
}

// Of an extent and of the power of two in it: the divisor next above a number (not above `most`) and those next below,
// two of each at most; the largest first.
inline Sizes near(int64_t number, int64_t extent, int64_t most, int64_t most_of_power) {
  Sizes all;
  auto add = [&](int64_t of, int64_t end) {
    size_t before = all.size();
    for (int64_t i = number + 1; i <= std::min(end, of) && all.size() == before; i++)
      if (of % i == 0) all.push_back(i);
    for (int64_t i = number; i >= 1 && all.size() < before + 2; i--)
      if (of % i == 0) all.push_back(i);
  };
  int64_t power = 1;
  while (2 * power <= std::min<int64_t>(extent, 4096)) power *= 2;
  add(extent, most);
  add(power, most_of_power);
  return descending(all);
}

struct Base {
  int64_t m = 0, n = 0, k = 0;  // in fractals; m 0: none fits
};
struct Room {
  int64_t left, right, sums;  // fractals of a turn of L0A, of L0B and of L0C
  bool has_bias;              // whose table holds 256 columns
  int64_t unit;               // fractals that blocks of M and N (of bytes) and K (of 32 bits) are multiples of
  int64_t unit_k;
};

// The base block of a core's part; `m` and `n` of `given` above 0 are taken as they are.
inline Base base_block(int64_t m, int64_t n, int64_t k, const Base& given, const Room& room) {
  m = up(m, room.unit);
  n = up(n, room.unit);
  k = up(k, room.unit_k);
  auto in_units = [](Sizes sizes, int64_t unit) {
    for (int64_t& one : sizes) one = up(one, unit);
    return descending(sizes);
  };
  Base best;
  int64_t best_load = 0, best_work = 0, best_sums = 0, best_steps = 0;
  bool is_quick = false;  // some block has been that the Cube takes longer to multiply than its operands to come
  int64_t widest = room.has_bias ? 16 : 64;
  for (int64_t wide : given.n ? Sizes{given.n} : in_units(near(11, n, widest, widest), room.unit)) {
    if (wide > std::min(room.sums, room.right) || (!given.n && (wide > n || (n >= WIDE && wide < WIDE)))) continue;
    int64_t highest = std::min(room.sums / wide, room.left);
    for (int64_t high : given.m ? Sizes{given.m} : in_units(near(highest, m, highest, highest), room.unit)) {
      if (high > highest || (!given.m && high > m)) continue;
      int64_t deepest = std::min(room.left / high, room.right / wide);
      for (int64_t deep : in_units(near(deepest, k, deepest, 64), room.unit_k)) {
        if (deep > deepest) continue;
        int64_t work = high * wide * deep, steps = (wide > 1 ? deep : 1) + (deep > 1 ? high : 1);
        bool quick = std::max<int64_t>(6, 2 * high * deep) + std::max<int64_t>(6, 4 * wide * deep) < work;
        if (is_quick && !quick) continue;
        int64_t load = parts(m, high) * n + parts(n, wide) * m;
        if (m * k <= 128 || n * k <= 128) load = m + n;
        else if (deep >= k) load = std::min(n + parts(n, wide) * m, m + parts(m, high) * n);
        bool better = !best.m || load < best_load || (quick && !is_quick) ||
                      (load == best_load && work > best_work && work * high * wide >= best_work * best_sums) ||
                      (load == best_load && work == best_work && steps < best_steps);
        if (!better) continue;
        best = {high, wide, deep};
        best_load = load;
        best_work = work;
        best_sums = high * wide;
        best_steps = steps;
        is_quick = is_quick || quick;
      }
    }
  }
  return best;
}

// Steps of K in L1: our own rule for A and B alike, of host tilings (matmul_tiling.h) and of constant ones.
struct L1Steps {
  int64_t step, buffers, line;
  bool is_full;
};
constexpr L1Steps l1_steps(int64_t k, int64_t base_m, int64_t base_n, int64_t base_k, int64_t bits, int64_t free) {
  int64_t count = (k + base_k - 1) / base_k, line = base_k * (base_m + base_n) * bits / 8, half = free / (2 * line);
  int64_t step = half < count ? half : count;
  bool is_full = step == count;
  return {step < 1 ? 1 : step, step < 1 || is_full ? 1 : 2, line, is_full};
}
}  // namespace rule
}  // namespace matmul_tiling
