// Bytes that functions of the library need beside their operands: for them and for hosts that ask.
#pragma once
#include <cstdint>

namespace npusim {

constexpr int64_t BLOCK_BYTES = 64;  // of a value of a row: enough copies for a block of half

constexpr int64_t whole(int64_t bytes, int64_t of) { return (bytes + of - 1) / of * of; }
// A row of floats, in whole blocks.
constexpr int64_t row_bytes(int64_t count) { return whole(count * 4, 32); }
// A row of floats, a repeat of what it folds to, and so many blocks.
constexpr int64_t softmax_bytes(int64_t count, int64_t blocks) {
  return whole(count * 4, 256) + 256 + blocks * BLOCK_BYTES;
}
// Values one behind the other also need a block, and 16 blocks for the sums and the maxima before.
constexpr int64_t softmax_flash_bytes(int64_t count, bool in_blocks) {
  return softmax_bytes(count, in_blocks ? 4 : 5) + (in_blocks ? 0 : 2 * 512);
}
// A row with six blocks: a row's mean and that of all parts, its maximum and moves, its sum.
constexpr int64_t softmax_flash_v3_bytes(int64_t count) { return softmax_bytes(count, 6); }
// One row for float, three for half; a block.
constexpr int64_t softmax_grad_bytes(int64_t count, int64_t type_size) {
  return row_bytes(count) * (type_size == 2 ? 3 : 1) + BLOCK_BYTES;
}
// Two rows; a block each for mean and variance, and one that is free.
constexpr int64_t layer_norm_bytes(int64_t count) { return 2 * row_bytes(count) + 3 * BLOCK_BYTES; }
// The row itself if it is of half, its squares, a block of floats.
constexpr int64_t rms_norm_bytes(int64_t count, int64_t type_size) {
  return row_bytes(count) * (type_size == 2 ? 2 : 1) + 32;
}
// Two rows; 16 deviations and their blocks, one row's mean, 16 values.
constexpr int64_t normalize_bytes(int64_t count) { return 2 * row_bytes(count) + 2 * 512 + 64; }
// Two planes; a repeat, blocks of 16 gammas and betas, three values.
constexpr int64_t group_norm_bytes(int64_t count) { return 2 * row_bytes(count) + 256 + 2 * 512 + 3 * BLOCK_BYTES; }
// Three rows; blocks of 16 means and variances, 16 values, five blocks of floats.
constexpr int64_t layer_norm_grad_bytes(int64_t count) { return 3 * row_bytes(count) + 2 * 512 + 64 + 5 * 32; }
// Both sums, and a row of either operand.
constexpr int64_t layer_norm_beta_bytes(int64_t count) { return 4 * row_bytes(count); }
// A piece of 128 elements: products in half, and of float factors and offsets in half too.
constexpr int64_t quant_bytes(int64_t type_size) { return 256 * (type_size == 4 ? 3 : 1); }
// A piece of 64 elements: products and factors in float.
constexpr int64_t dequant_bytes() { return 512; }
// A piece of 128 elements: nothing for half; in half, and three times in float for bfloat16_t.
constexpr int64_t antiquant_bytes(bool is_half) { return is_half ? 0 : 128 * (2 + 3 * 4); }
// Along rows of half: a sum and a line in float. Along columns: rows that are turned together, and the places of their
// elements.
constexpr int64_t CUMSUM_ROWS = 16;
constexpr int64_t cumsum_bytes(int64_t width, int64_t type_size, bool is_last_axis) {
  if (!is_last_axis) return type_size == 2 ? 2 * row_bytes(width) : 0;
  int64_t most = width > CUMSUM_ROWS ? width : CUMSUM_ROWS;
  return width * CUMSUM_ROWS * type_size + row_bytes(most) + 2 * row_bytes(CUMSUM_ROWS);
}
// Of a turn of 256 elements: masks of bytes as half, and their bits.
constexpr int64_t BYTE_MASK_ROOM = 544;
// A square of elements of 16 bits that come, and one of those that go.
constexpr int64_t TRANS_DATA_ROOM = 2 * 512;
// The places of a row's elements; twice.
constexpr int64_t pad_bytes(int64_t width, int64_t type_size) { return whole(width * type_size, 32) / type_size * 4; }
// Of all rows at once if they are small: numbers with the other sign, indices, and pairs, twice if they are merged.
constexpr int64_t topk_bytes(int64_t inner, int64_t rows, int64_t type_size, bool is_small) {
  return (is_small ? inner * rows : inner) * (type_size + 4 + (is_small ? 8 : 16));
}
// Two of 64 numbers, one more of half.
constexpr int64_t welford_update_bytes(int64_t type_size) { return 256 * (type_size == 2 ? 3 : 2); }
// Of ReduceAny and ReduceAll in bytes: a row in half, a repeat of each row of a block of results, these; 32 columns, and
// 32 of another row. Of ReduceXorSum: a repeat of sums, 128 numbers twice and as floats.
constexpr int64_t logical_row_bytes(int64_t rows, int64_t width) {
  return whole(2 * width, 32) + 256 * (rows < 32 ? rows : 32) + 64;
}
constexpr int64_t LOGICAL_COLUMN_BYTES = 128, XOR_SUM_BYTES = 256 + 1024;
// Factors, deviations, and a value.
constexpr int64_t welford_finalize_bytes(int64_t count) { return 2 * row_bytes(count) + 64; }
}  // namespace npusim
