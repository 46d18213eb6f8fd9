// Bytes that functions of the library on rows need beside their operands: for them and for hosts that ask.
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
// One row for float, three for half; a block.
constexpr int64_t softmax_grad_bytes(int64_t count, int64_t type_size) {
  return row_bytes(count) * (type_size == 2 ? 3 : 1) + BLOCK_BYTES;
}
}  // namespace npusim
