// Operands of a matrix product in L1, as they are stored and as parts of them are kept.
#pragma once
#include "npusim/matmul_types.h"

namespace npusim {

constexpr int64_t FRACTAL = 512, MMAD_BARRIER = 2560, MAX_ROW_STEP = 65535;
constexpr int64_t parts(int64_t value, int64_t by) { return (value + by - 1) / by; }

// What products of a type add up to.
template <class T> inline constexpr bool is_whole_number = std::is_same_v<T, int8_t> || is_int4<T>;
template <class T> using Sum = std::conditional_t<is_whole_number<T>, int32_t, float>;

// Elements of a block of 32 bytes, and rows and columns that a load turns at a time.
template <class T> inline constexpr int64_t C0 = elements_in<T>(32);
template <class T> inline constexpr int64_t SQUARE = sizeof(T) == 1 ? C0<T> : 16;
// Elements of rows as instructions count them: of int4 pairs.
template <class T> constexpr int64_t counted_by_copies(int64_t count) { return is_int4<T> ? count / 2 : count; }

// An operand as it is stored: rows and columns as SetOrgShape says, or L1 that holds it already.
template <class T> struct Stored {
  AscendC::GlobalTensor<T> gm;
  AscendC::LocalTensor<T> l1;
  bool is_local = false, is_nz = false, turns = false;  // turns: its rows become columns on the way to L0
  int64_t rows = 0, columns = 0;                        // of the whole in memory
};

// Part of an operand in L1: columns of blocks of 32 bytes, each of whole fractals of rows, of int8 and int4 that is to be
// turned of whole squares.
template <class T, AscendC::TPosition P> class Panels {
 public:
  static int64_t count_of(int64_t count) { return count < 1 ? 1 : count > MAX ? MAX : count; }
  void init(Here here, AscendC::TPipe& pipe, int64_t count, int64_t bytes) {
    count_ = int(count_of(count));
    pipe.InitBuffer(queue_, uint8_t(count_), uint32_t(bytes), here);
  }

  struct Panel {
    AscendC::LocalTensor<T> tensor;
    int64_t owner = -1, version = 0, row = 0, column = 0, rows = 0, columns = 0;
    bool in_bands = false;  // each 16 rows one behind the other
  };

  // The panel with rows x columns from (row, column) on, loaded by `bring` if it is not there; both start at multiples
  // of 16.
  template <class Bring>
  const Panel& get(Here here, const Bring& bring, int64_t owner, int64_t version, int64_t row, int64_t rows,
                   int64_t column, int64_t columns) {
    for (int i = 0; i < count_; i++) {
      const Panel& one = held_[i];
      if (one.owner == owner && one.version == version && one.row == row && one.column == column && one.rows == rows &&
          one.columns == columns)
        return one;
    }
    Panel& next = held_[next_];
    next_ = (next_ + 1) % count_;
    drop(here, next);
    next = {queue_.template AllocTensor<T>(here), owner, version, row, column, rows, columns};
    bring(next);
    queue_.EnQue(next.tensor, here);
    next.tensor = queue_.template DeQue<T>(here);
    return next;
  }

  void drop_all(Here here, int64_t owner) {
    for (int i = 0; i < count_; i++)
      if (held_[(next_ + i) % count_].owner == owner) drop(here, held_[(next_ + i) % count_]);
  }

  void leave(Here here) {
    for (int i = 0; i < count_; i++) drop(here, held_[(next_ + i) % count_]);
    queue_.FreeAllEvent(here);
  }

  static void load(Here here, const Stored<T>& from, Panel& to) {
    checked(here, from.gm, "Matmul");
    if (from.is_nz) return load_nz(here, from, to);
    // squares of 32-bit elements are turned fractal by fractal: their rows lie in bands of 16
    to.in_bands = sizeof(T) == 4 && from.turns;
    define_tail(here, from, to);
    int64_t at = to.row * from.columns + to.column;
    if (!to.in_bands)
      return fetch(here, from, to.tensor.address, at, to.rows, to.columns, up(to.rows, unit(from)));
    int64_t band = 2 * parts(to.columns, 16) * FRACTAL;
    for (int64_t row = 0; row < to.rows; row += 16) {
      int64_t rows = to.rows - row < 16 ? to.rows - row : 16;
      fetch(here, from, to.tensor.address + row / 16 * band, at + row * from.columns, rows, to.columns, 16);
    }
  }
  // A kernel's own function fills the panel, in columns of blocks like those of fractals in memory.
  static void prepare(Here here, const Stored<T>& from, const Panel& to) {
    checked(here, from.gm, "Matmul");
    if (from.is_nz) fill_squares(here, from, to);
    else define_tail(here, from, to);
    fill_pairs(here, from, to);
  }

 private:
  static constexpr int MAX = 16;
  AscendC::TQue<P, MAX> queue_;
  Panel held_[MAX];
  int count_ = 0, next_ = 0;

  void drop(Here here, Panel& one) {
    if (one.owner >= 0) queue_.FreeTensor(one.tensor, here);
    one.owner = -1;
  }

  // Rows up to a multiple of this are there.
  static int64_t unit(const Stored<T>& from) { return from.turns ? SQUARE<T> : 16; }

  // What ND2NZ leaves of the last fractals: the loads to L0 take it along. ASSUMED: a device multiplies what is there.
  static void define_tail(Here here, const Stored<T>& from, const Panel& to) {
    int64_t whole = unit(from), lines = to.rows % whole, columns = parts(to.columns, C0<T>), pitch = up(to.rows, whole);
    int64_t at = to.tensor.address + to.rows * 32;
    if (to.in_bands) {
      int64_t pairs = 2 * parts(to.columns, 16);
      if (columns < pairs)
        emit_fill(here, space::L1, to.tensor.address + columns * FRACTAL, data::FP16, parts(to.rows, 16), 16,
                  16 * pairs - 16, 0);
      columns = pairs;
      pitch = 16;
      at = to.tensor.address + to.rows / 16 * columns * FRACTAL + lines * 32;
    }
    if (lines) emit_fill(here, space::L1, at, data::FP16, columns, whole - lines, pitch - whole + lines, 0);
  }

  static void fetch(Here here, const Stored<T>& from, int64_t l1, int64_t at, int64_t rows, int64_t columns,
                    int64_t pitch) {
    int64_t step = counted_by_copies<T>(from.columns);
    bool fits = step <= MAX_ROW_STEP;
    for (int64_t row = 0; row < (fits ? 1 : rows); row++)
      emit_nd2nz(here, l1 + row * 32, from.gm[uint64_t(at + row * from.columns)].address(), moved<T>(), 1,
                 fits ? rows : 1, counted_by_copies<T>(columns), 0, fits ? step : 1, pitch, 1, 0, from.gm.tensor);
  }

  static void load_nz(Here here, const Stored<T>& from, const Panel& to) {
    int64_t whole = up(from.rows, 16), lines = up(to.rows, 16), pitch = up(to.rows, unit(from));
    int64_t at = (to.column / C0<T> * whole + to.row) * C0<T>, count = parts(to.columns, C0<T>);
    bool fits = whole - lines <= MAX_ROW_STEP;
    for (int64_t i = 0; i < (fits ? 1 : count); i++)
      emit_data_copy(here, space::L1, to.tensor.address + i * pitch * 32, space::GM,
                     from.gm[uint64_t(at + i * whole * C0<T>)].address(), fits ? count : 1, lines, fits ? whole - lines : 0,
                     pitch - lines, moved<T>(), from.gm.tensor);
    fill_squares(here, from, to);
    fill_pairs(here, from, to);
  }

  // The other half of a square of bytes, which is turned with it.
  static void fill_squares(Here here, const Stored<T>& from, const Panel& to) {
    int64_t lines = up(to.rows, 16), pitch = up(to.rows, unit(from));
    if (pitch > lines)
      emit_fill(here, space::L1, to.tensor.address + lines * 32, data::FP16, parts(to.columns, C0<T>), pitch - lines, lines, 0);
  }
  // 32-bit elements of columns of blocks are turned two columns at a time.
  static void fill_pairs(Here here, const Stored<T>& from, const Panel& to) {
    int64_t columns = parts(to.columns, C0<T>), pitch = up(to.rows, 16);
    if (sizeof(T) == 4 && from.turns && columns % 2)
      emit_fill(here, space::L1, to.tensor.address + columns * pitch * 32, data::FP16, 1, pitch, 0, 0);
  }
};
}  // namespace npusim
