// The process that a kernel runs in: its cores are coroutines, whose rows go to the emulator through shared memory.
//
// The emulator answers with one byte when it has taken (and run) what was handed over. A core gives its place up where
// it waits for others only, so its rows come in program order and its reads see what these left. Rows of several cores
// are handed over at once, one lot behind the other: a hand-over costs as much as hundreds of rows.
#pragma once
#include <algorithm>
#include <csignal>
#include <cstdarg>
#include <exception>
#include <string>
#include <sys/mman.h>
#include <time.h>
#include <tuple>
#include <vector>
#include <ucontext.h>
#include <unistd.h>

#include "npusim_control.h"
#include "npusim_layout.h"
#include "npusim_registry.h"
#include "npusim/block_local.h"
#include "npusim/tables.h"

namespace npusim {

constexpr size_t STACK_BYTES = 1 << 20, GUARD_BYTES = 1 << 16;

enum class Wait { NONE, SYNC, FLAG, MESSAGE, LOOK, ENDED };
constexpr int CROSS_FLAGS = 16, CROSS_MODES = 3;

// What a core's registers hold between calls, and the pipe that owns its buffers.
struct FeatureMap {
  int64_t l1_h = 0, l1_w = 0, pad[4] = {};
};

// A tile of L0C that Mmad and Fixpipe hand to each other by unitFlag.
enum class Tile { FREE, OPEN, CLOSED, KEPT, EMPTIED };
struct UnitTile {
  int64_t address = 0, bytes = 0;
  Tile state = Tile::FREE;
};
constexpr int UNIT_TILES = 4;

// How often a core has looked at global memory without doing anything else, and what it saw where (signals.h).
struct Looks {
  static constexpr int PLACES = 64;
  int64_t rows = 0;     // that only look, of all that the core has made
  int64_t since = 0;    // other rows when the first of these looks came
  int64_t again = 0;    // times that a look found what it had found before
  int64_t patience = 0; // times after which the others get their turn
  int count = 0, next = 0;  // places, and where the next look is likely to be
  struct {
    int64_t address;
    uint64_t value;
  } seen[PLACES];
};

// What an atomic store does with what is there.
enum class Merge { ADD, MAX, MIN };

// What a block begins with.
struct Registers {
  void* pipe = nullptr;
  FeatureMap maps[2];
  bool counts = false;         // SetMaskCount
  uint64_t mask_low = ~0ull;  // that was set last
  int64_t atomic = 0;          // type of atomic stores, NONE: they are plain
  Merge merge = Merge::ADD;    // what atomic stores do
  bool overflows_otherwise = false;  // SetOverflow has left the mode in which cores begin
  int64_t comparison = -1;  // where the bits of CmpMask are
  bool has_compared = false;  // into the register
  void (*at_end)() = nullptr;
  // What ReduceSum left, where the last extremes of repeats are, what casts scale by.
  uint64_t sum = 0;
  struct {
    int64_t address = -1, repeats = 0, step = 0;
    bool index_first = false, is_least = false;
    uint32_t bytes = 4;  // of an element
  } extreme;
  uint16_t merged[4] = {};  // pairs that the last MrgSort took of each list
  uint64_t kept = 0;        // elements that the last GatherMask kept
  float scale = __builtin_nanf("");  // of halves
  // What the register of SetDeqScale holds now, and its bits: for 16 scales where they are in UB.
  enum class Deq : uint8_t { NONE, HALF, NUMBER, VECTOR } deq = Deq::NONE;
  uint64_t deq_word = 0;
  UnitTile tiles[UNIT_TILES];
  // Of SetFixpipeNz2ndFlag.
  uint16_t matrices = 1, src_matrix = 0, dst_matrix = 0;
  uint64_t quantisation = 0;  // of SetFixpipePreQuantFlag
  int64_t scales = -1;        // in the Fixpipe buffer, of SetFixPipeConfig
  // Of SetPadValue.
  bool pads = false;
  int64_t pad_bits = 0;
};

// A buffer whose pipe is destroyed: it lives until another pipe comes, as what is there may be used by hand.
struct LeftBuffer {
  int64_t space, address, bytes, number;
};

struct Core : Registers {
  int64_t index = 0, block = 0, sub_block = 0;
  bool is_vector = false, is_cube = false;
  Wait wait = Wait::NONE;
  // Flags between cores: counters, the one that is waited for, and sets that others have yet to join.
  int counters[CROSS_FLAGS] = {}, awaited = 0;
  int sets[CROSS_MODES][CROSS_FLAGS] = {};
  ucontext_t context;
  uint8_t* stack = nullptr;
  int64_t last_site = 0;
  // Pipes whose rows the scalar unit has not waited for, and pipes that have not waited for it (auto_sync).
  uint32_t before_scalar = 0, behind_scalar = 0;
  Looks looks;
  const char* awaited_by = "";  // the call that waits for others to store something
  std::vector<int64_t> stored;  // words of global memory that the scalar unit stored to, and others may not see yet
  int64_t cleaned = -1, cleaned_at = 0;  // the line of the data cache that was cleaned last (signals.h), and when
  std::vector<int64_t> known;   // of each word (signals.h): how many stores to it this core has seen
  int64_t row_count = 0;
  std::vector<LeftBuffer> left;
  uint64_t va[8][8] = {};       // registers of eight addresses each (lower_names.h)
};

inline Control* control = nullptr;
inline Row* all_rows = nullptr;
inline Row* rows = nullptr;  // those to be handed over
inline uint8_t* gm = nullptr;
inline uint8_t* stored_gm = nullptr;  // the same, where it may be written (settled.h)
inline Core* self = nullptr;
inline Core* cores = nullptr;
inline ucontext_t scheduler;
inline int ask_fd = -1, answer_fd = -1;
// Rows of the buffer that are known to store nothing to global memory.
inline int64_t scanned = 0;
inline int64_t handed_over = 0;
// Whether rows that were handed over may not have run yet.
inline bool is_ahead = false;

// Rows of all cores, and those up to which the program knows by itself what memory holds (settled.h): all have run but for
// rows of the scalar unit that are certainly right. -1: some may be running.
inline int64_t rows_made = 0, rows_known = 0;
// Answers that came behind other rows.
inline int64_t answers = 0;

inline bool knows_all() { return rows_known == rows_made; }

// Whether the emulator will carry out nothing behind a row that has been made: what is in UB may still be read.
inline bool ends_here = false;

// The rows of its life are certainly right, and leave memory as it was.
struct Known {
  const bool was;
  explicit Known(bool are_right) : was(are_right && knows_all()) {}
  ~Known() {
    if (was && !is_ahead) rows_known = rows_made;
  }
};

inline int64_t milliseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// Hands over and waits for the answer, which comes when the rows have run; only to plain rows it comes at once, and what
// follows goes where these are not.
inline void hand_over(Status status, int64_t site) {
  control->status = int64_t(status);
  control->site = site;
  char byte = 0;
  if (write(ask_fd, &byte, 1) != 1 || read(answer_fd, &byte, 1) != 1) _exit(4);  // the emulator is gone
  is_ahead = status == Status::ROWS;
  answers += !is_ahead && !knows_all();
  rows_known = is_ahead ? -1 : rows_made;
  if (is_ahead) {
    control->first = ROW_CAPACITY - control->first;
    rows = all_rows + control->first;
  }
  control->count = control->lot_count = scanned = 0;
  handed_over = milliseconds();
}

inline void hand_over(Status status) { hand_over(status, self ? self->last_site : 0); }

// The emulator ends a core that is silent for long, so it hears something after some time. A core looks at the clock when
// its turn is over, and whenever it has made so many rows.
constexpr int64_t LONGEST_WAIT = 20;  // milliseconds
constexpr int64_t LOOK_ROWS = 4096;

inline bool is_late() { return milliseconds() - handed_over > LONGEST_WAIT; }

// Ends the rows that the core hands over in its turn. The emulator hears of them with what follows, but at once where
// there is no room for another.
inline void end_lot(Status why) {
  control->lots[control->lot_count++] = {self->index, control->count, int64_t(why)};
  control->site = self->last_site;
  if (control->lot_count == MAX_LOTS || is_late()) hand_over(Status::ROWS);
}

inline bool allow(Pages pages, int how) { return mprotect(gm + pages.begin, size_t(pages.end - pages.begin), how) == 0; }

// Whether pages of global memory tell that they are touched (is_first_touch), and whether rows may not have run that were
// made before a core began to wait for others: they run before the first look by a pointer.
inline bool are_watched = false, is_unsettled = false;

// What others did before this core goes on is done when it looks at memory by a pointer.
inline void settle_before_looks() {
  if (!control->lot_count && !is_ahead) return;
  if (!are_watched) return hand_over(Status::SETTLE);
  is_unsettled = true;
  for (int64_t i = 0; i < control->look_count; i++) allow(control->looks[i], PROT_NONE);
}

inline void settle_for_look() {
  hand_over(Status::SETTLE);
  is_unsettled = false;
  for (int64_t i = 0; i < control->look_count; i++) allow(control->looks[i], PROT_READ);
  for (int64_t i = 0; i < control->store_count; i++) allow(control->stores[i], PROT_READ | PROT_WRITE);
}

// What a kernel prints; host code of a program that holds kernels prints by itself.
inline void say(const char* text, size_t length) {
  if (!control) {
    fwrite(text, 1, length, stdout);
    return;
  }
  control->text_bytes = int64_t(length < size_t(TEXT_BYTES) ? length : TEXT_BYTES - 1);
  memcpy(control->text, text, size_t(control->text_bytes));
  control->text[control->text_bytes] = 0;
  hand_over(Status::PRINT);
}

// Kernels may call printf of the C library.
inline void take_standard_output() {
  cookie_io_functions_t functions{};
  functions.write = [](void*, const char* text, size_t length) {
    say(text, length);
    return ssize_t(length);
  };
  if (FILE* file = fopencookie(nullptr, "w", functions)) {
    setvbuf(file, nullptr, _IOLBF, 1 << 12);
    stdout = file;
  }
}

// The place of the last row, for calls that do not know theirs.
inline Here last_call() {
  return {control->files[self->last_site >> LINE_BITS].name, int32_t(self->last_site & ((1 << LINE_BITS) - 1))};
}

inline int64_t site_of(Here here) {
  static const char* last = nullptr;
  static int64_t number = 0;
  if (here.file != last) {
    last = here.file;
    for (number = 0; number < control->file_count; number++)
      if (!strncmp(control->files[number].name, here.file, FILE_BYTES - 1)) break;
    if (number == control->file_count) {
      if (number == MAX_FILES) number--;
      else control->file_count++;
      snprintf(control->files[number].name, FILE_BYTES, "%s", here.file);
    }
  }
  return number << LINE_BITS | here.line;
}

inline void refuse(Here here, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (!control) {  // host code of a program that holds kernels
    fprintf(stderr, "%s:%d: ", here.file, here.line);
    vfprintf(stderr, format, arguments);
    abort();
  }
  vsnprintf(control->text, TEXT_BYTES, format, arguments);
  va_end(arguments);
  hand_over(Status::REFUSED, here.line ? site_of(here) : self ? self->last_site : 0);
  _exit(3);
}

// Notes that a copy moves less than it was asked to, once for each place.
inline void note_cut(Here here, int64_t count, int64_t item, int64_t unit) {
  int64_t site = site_of(here), known = control->cut_count;
  for (int64_t i = 0; i < known; i++)
    if (control->cuts[i].site == site) return;
  if (known < MAX_CUTS) control->cuts[control->cut_count++] = {site, self->index, count, item, unit};
}

inline void misfit(Here here, const char* api, const char* field, int bits, int64_t value) {
  control->count--;
  refuse(here, "%s %s must fit %d bits, not be %lld", api, field, bits, (long long)value);
}

// Sites and buffers that the emulator has not heard of are told once.
inline bool is_new(uint64_t* seen, int64_t number) {
  uint64_t bit = 1ull << (number & 63);
  if (seen[number >> 6] & bit) return false;
  seen[number >> 6] |= bit;
  return true;
}

inline void note_site(int64_t site) {
  static uint64_t seen[(MAX_FILES << LINE_BITS) / 64];
  if (is_new(seen, site) && control->site_count < MAX_SITES) control->sites[control->site_count++] = site;
}

inline void note_buffer(int64_t number) {
  static uint64_t seen[(MAX_BUFFERS << 5) / 64];
  if (number < (MAX_BUFFERS << 5) && is_new(seen, number) && control->buffer_count < MAX_BUFFERS)
    control->buffers[control->buffer_count++] = number;
}

inline Row& new_row(Here here) {
  int64_t count = control->count;
  if (count == ROW_CAPACITY || (count % LOOK_ROWS == 0 && is_late())) [[unlikely]] hand_over(Status::ROWS);
  Row& row = rows[control->count++];
  clear(row);
  int64_t site = site_of(here);
  if (site != self->last_site) note_site(site);
  self->last_site = site;
  self->row_count++;
  rows_made++;
  put_at<int32_t>(row, SITE_AT, int32_t(self->last_site));
  put_at<int32_t>(row, TILE_AT, -1);
  return row;
}

// With auto_sync the compiler of the source lets the scalar unit wait for other pipes, and these for it. It uses a flag
// of its own, the last there is.
inline void hand_flag(Here here, int64_t from, int64_t to) {
  Known flags(!ends_here);
  emit_set_flag(here, from, to, control->event_count - 1);
  emit_wait_flag(here, from, to, control->event_count - 1);
}

// Pipes between which each product with vector cores has flags, and barriers of each but S.
inline bool is_of_vectors(int64_t on) {
  return on == pipe::S || on == pipe::V || on == pipe::MTE2 || on == pipe::MTE3;
}

// In the other mode numbers that are too large become others: nothing may be computed, nor added in memory.
inline void keep_overflow_mode(Here here, int64_t on) {
  if (on == pipe::V || on == pipe::M || on == pipe::FIX || (on == pipe::MTE3 && self->atomic != data::NONE))
    refuse(here, "AscendCUtils::SetOverflow must leave the mode in which the cores begin, %d, where anything is computed",
           __NPU_ARCH__ == 2201);
}

inline void before_row(Here here, int64_t on) {
  if (self->overflows_otherwise) [[unlikely]] keep_overflow_mode(here, on);
  uint32_t bit = 1u << on;
  if (on == pipe::S || !control->auto_sync) return;
  self->before_scalar |= bit;
  if (self->behind_scalar & bit) [[unlikely]] {
    self->behind_scalar &= ~bit;
    hand_flag(here, pipe::S, on);
  }
}

// Before the scalar unit touches memory; what touches the same kind of memory in the other way waits for it.
inline void before_scalar(Here here, bool in_gm, bool stores) {
  if (!control->auto_sync || !self->is_vector) return;
  for (int64_t on : {pipe::V, pipe::MTE2, pipe::MTE3})
    if (self->before_scalar >> on & 1) hand_flag(here, on, pipe::S);
  self->before_scalar = 0;
  uint32_t readers = in_gm ? 1u << pipe::MTE2 : 1u << pipe::V | 1u << pipe::MTE3;
  uint32_t writers = in_gm ? 1u << pipe::MTE3 : 1u << pipe::V | 1u << pipe::MTE2;
  self->behind_scalar |= writers | (stores ? readers : 0);
}

// The place of an address in global memory, which kernels hold as pointers.
inline int64_t gm_offset(const void* pointer) { return (const uint8_t*)pointer - gm; }

inline int64_t tensor_at(int64_t address) {
  for (int64_t i = 0; i < control->tensor_count; i++) {
    const SharedTensor& tensor = control->tensors[i];
    if (address >= tensor.address && address < tensor.address + tensor.size) return i;
  }
  return -1;
}

inline void wait_for_all() {
  self->wait = Wait::SYNC;
  end_lot(Status::SYNC);
  swapcontext(&self->context, &scheduler);
}

inline bool has_both_kinds() { return control->cubes_per_block && control->vectors_per_block; }

// Whether two cores belong to one block, of whose successors one may have begun already.
inline bool are_together(const Core& one, const Core& other) {
  return one.block % control->blocks_at_once == other.block % control->blocks_at_once;
}

// Those who set a flag of a mode together with a core, and those on whom it counts then.
template <class F> inline void for_setters(const Core& core, int mode, F visit) {
  for (int64_t i = 0; i < control->cores; i++) {
    Core& other = cores[i];
    if (other.is_cube == core.is_cube && (mode == 0 || are_together(core, other))) visit(other);
  }
}
template <class F> inline void for_targets(const Core& core, int mode, F visit) {
  for (int64_t i = 0; i < control->cores; i++) {
    Core& other = cores[i];
    bool same_kind = other.is_cube == core.is_cube;
    if (mode == 0 ? same_kind : are_together(core, other) && same_kind == (mode == 1)) visit(other);
  }
}

// Whether the turns begin anew with the first core.
inline bool from_first = false;

// Behind a flag of all cores of a kind, that is, a SyncAll, they go on in the order of their numbers, as they began.
inline void cross_set(int mode, int flag) {
  control->crosses = 1;
  self->sets[mode][flag]++;
  bool all = true;
  for_setters(*self, mode, [&](Core& core) { all = all && core.sets[mode][flag]; });
  if (!all) return;
  for_setters(*self, mode, [&](Core& core) { core.sets[mode][flag]--; });
  bool freed = false;
  for_targets(*self, mode, [&](Core& core) {
    core.counters[flag]++;
    if (core.wait != Wait::FLAG || core.awaited != flag) return;
    core.wait = Wait::NONE;
    freed = true;
  });
  if (mode != 0 || !freed) return;
  from_first = true;
  end_lot(Status::ROWS);
  swapcontext(&self->context, &scheduler);
  settle_before_looks();
}

inline void cross_wait(int flag) {
  control->crosses = 1;
  if (!self->counters[flag]) {
    self->wait = Wait::FLAG;
    self->awaited = flag;
    end_lot(Status::ROWS);
    swapcontext(&self->context, &scheduler);
  }
  settle_before_looks();
  self->counters[flag]--;
}

// Rows of all cores that do more than look at global memory.
inline int64_t done_so_far() {
  int64_t done = 0;
  for (int64_t i = 0; i < control->cores; i++) done += cores[i].row_count - cores[i].looks.rows;
  return done;
}

// Lets the others go on as far as they can: they may store what the core looks for.
inline void give_way(const char* call) {
  self->awaited_by = call;
  self->wait = Wait::LOOK;
  end_lot(Status::ROWS);
  swapcontext(&self->context, &scheduler);
  settle_before_looks();
}

// Cores that look for something get a turn whenever nobody else can go on. Returns whether there were any; `seen` and
// `rounds` say since how many such turns nothing was done.
constexpr int64_t IDLE_ROUNDS = 2000;
inline bool look_again(int64_t& seen, int64_t& rounds) {
  int64_t done = done_so_far();
  rounds = done == seen ? rounds + 1 : 0;
  seen = done;
  bool any = false;
  for (int64_t i = 0; i < control->cores && rounds < IDLE_ROUNDS; i++)
    if (cores[i].wait == Wait::LOOK) {
      cores[i].wait = Wait::NONE;
      any = true;
    }
  return any;
}

// ------------------------------------------------------------------------------------------------------------ entry

template <class T> T argument(int64_t index) {
  const Argument& given = control->arguments[index];
  using Plain = std::remove_cv_t<std::remove_reference_t<T>>;
  auto wrong = [&](const char* wanted) {
    refuse(Here{"", 0}, "argument %lld of the kernel must be %s", (long long)index, wanted);
  };
  ArgumentKind kind = ArgumentKind(given.kind);
  if constexpr (std::is_null_pointer_v<Plain>) {
    return nullptr;
  } else if constexpr (std::is_pointer_v<Plain>) {
    if (kind != ArgumentKind::TENSOR && kind != ArgumentKind::BYTES && kind != ArgumentKind::LIST)
      wrong("an array (GM_ADDR)");
    return (Plain)(given.word < 0 ? nullptr : gm + given.word);
  } else if constexpr (std::is_arithmetic_v<Plain> || std::is_enum_v<Plain> || std::is_same_v<Plain, half>) {
    if (kind == ArgumentKind::FLOAT) {
      double value;
      memcpy(&value, &given.word, 8);
      if constexpr (std::is_integral_v<Plain> || std::is_enum_v<Plain>) wrong("a whole number");
      else return Plain(value);
    }
    if (kind != ArgumentKind::INTEGER) wrong("a number");
    if constexpr (std::is_integral_v<Plain>)
      if (int64_t(Plain(given.word)) != given.word && uint64_t(Plain(given.word)) != uint64_t(given.word))
        wrong("a number that its type can hold");
    return Plain(given.word);
  } else {
    if (kind != ArgumentKind::BYTES) wrong("bytes of a struct");
    if (given.size != int64_t(sizeof(Plain)))
      refuse(Here{"", 0}, "argument %lld of the kernel must be a struct of %d bytes, not %lld", (long long)index,
             int(sizeof(Plain)), (long long)given.size);
    Plain value;
    memcpy((void*)&value, gm + given.word, sizeof value);
    return value;
  }
}

// That of the system; null: where it is has not been set.
inline uint8_t* workspace = nullptr;

#if defined(NPUSIM_SYSTEM_WORKSPACE) && defined(HAVE_WORKSPACE)
// Options of a program's compiler: the last parameter is the workspace, with HAVE_TILING the one before the tiling. What a
// launch is given begins with the system's, which is set, and the kernel gets what is behind.
#ifdef HAVE_TILING
constexpr size_t BEHIND_WORKSPACE = 1;
#else
constexpr size_t BEHIND_WORKSPACE = 0;
#endif
template <class A, size_t index, size_t count> A kernel_argument() {
  A given = argument<A>(index);
  if constexpr (index + 1 + (count > 1 ? BEHIND_WORKSPACE : 0) == count) {
    static_assert(std::is_pointer_v<A>, "HAVE_WORKSPACE: the last parameter (HAVE_TILING: the one before) is a pointer");
    if (given == nullptr)
      refuse(Here{"", 0}, "argument %d of the kernel must be its workspace, not nullptr (HAVE_WORKSPACE)", int(index));
    workspace = (uint8_t*)given;
    return (A)(workspace + NPUSIM_SYSTEM_WORKSPACE);
  }
  return given;
}
#else
template <class A, size_t index, size_t count> A kernel_argument() { return argument<A>(index); }
#endif

template <class... A, size_t... I> void call(void (*kernel)(A...), std::index_sequence<I...>) {
  if (control->argument_count != int64_t(sizeof...(A)))
    refuse(Here{"", 0}, "the kernel must be given %d arguments, not %lld", int(sizeof...(A)),
           (long long)control->argument_count);
  kernel(kernel_argument<A, I, sizeof...(A)>()...);
}

inline void (*the_kernel)() = nullptr;

inline void core_main() {
  try {
    the_kernel();
    if (self->at_end) self->at_end();
  } catch (const std::exception& error) {
    refuse(Here{"", 0}, "kernel must not throw: %s", error.what());
  } catch (...) {
    refuse(Here{"", 0}, "kernel must not throw");
  }
  fflush(stdout);
  self->wait = Wait::ENDED;
  end_lot(Status::END);
  swapcontext(&self->context, &scheduler);
}

inline bool is_among(const Pages* pages, int64_t count, int64_t place) {
  for (int64_t i = 0; i < count; i++)
    if (place >= pages[i].begin && place < pages[i].end) return true;
  return false;
}

template <size_t N> inline Pages noted(Pages (&pages)[N], int64_t& count, Pages page) {
  Pages* last = count ? &pages[count - 1] : nullptr;
  if (last && last->end == page.begin) last->end = page.end;
  else if (count < int64_t(N)) pages[count++] = page;
  else *last = page = {0, control->gm_bytes};  // too many to tell apart
  return page;
}

// Looks and stores through plain pointers are no instructions. Global memory may not be touched at first, so the first
// touch of each of its pages comes here: the page is noted, and may be read from now on, and written from the next one
// on. So does the first behind a wait for others. Returns whether it was that.
inline bool is_first_touch(const siginfo_t* info) {
  const uint8_t* at = (const uint8_t*)info->si_addr;
  if (info->si_code != SEGV_ACCERR || at < gm || at >= gm + control->gm_bytes) return false;
  int64_t size = sysconf(_SC_PAGESIZE), begin = (at - gm) / size * size;
  Pages page{begin, begin + size};
  bool was_noted = is_among(control->looks, control->look_count, begin);
  if (is_unsettled) {
    settle_for_look();
    if (was_noted) return true;
  }
  if (was_noted) {
    if (is_among(control->stores, control->store_count, begin)) return false;
    return allow(noted(control->stores, control->store_count, page), PROT_READ | PROT_WRITE);
  }
  page = noted(control->looks, control->look_count, page);
  if (!allow(page, PROT_READ)) return false;
  for (int64_t i = 0; i < control->store_count; i++)  // of all pages some may be written already
    if (control->stores[i].begin >= page.begin && control->stores[i].end <= page.end)
      allow(control->stores[i], PROT_READ | PROT_WRITE);
  return true;
}

// A division of whole numbers by 0 ends no kernel on a device. ASSUMED: the quotient is 0, the remainder the dividend; a
// finding says where, at the row before. Returns whether the instruction was that.
inline bool is_division_by_zero(const siginfo_t* info, void* context) {
#ifdef __x86_64__
  if (!self || info->si_code != FPE_INTDIV) return false;
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  const uint8_t* at = (const uint8_t*)registers[REG_RIP];
  uint8_t rex = (*at & 0xF0) == 0x40 ? *at++ : 0;
  if (*at++ != 0xF7) return false;
  uint8_t modes = *at++, mode = modes >> 6, base = modes & 7, kind = modes >> 3 & 7;
  if (kind != 6 && kind != 7) return false;  // div and idiv
  bool is_far = rex & 8, is_relative = base == 5;
  if (mode != 3) {
    if (base == 4) is_relative = (*at++ & 7) == 5;
    at += mode == 1 ? 1 : mode == 2 || (mode == 0 && is_relative) ? 4 : 0;
  }
  uint64_t low = uint64_t(registers[REG_RAX]);
  uint64_t dividend = is_far ? low : uint32_t(low), least = is_far ? 1ull << 63 : 1ull << 31;
  if (kind == 7 && dividend == least) return false;  // by -1 too it is none
  registers[REG_RAX] = 0;
  registers[REG_RDX] = greg_t(dividend);
  registers[REG_RIP] = greg_t(at);
  int64_t known = 0;
  while (known < control->cut_count && (control->cuts[known].site != self->last_site || control->cuts[known].unit)) known++;
  if (known == control->cut_count && known < MAX_CUTS)
    control->cuts[control->cut_count++] = {self->last_site, self->index, 0, 0, 0};
  return true;
#else
  return false;
#endif
}

inline void on_signal(int number, siginfo_t* info, void* context) {
  if (number == SIGSEGV && is_first_touch(info)) return;
  if (number == SIGFPE && is_division_by_zero(info, context)) return;
  signal(number, SIG_DFL);
  const char* name = number == SIGSEGV ? "SIGSEGV" : number == SIGFPE ? "SIGFPE" : number == SIGILL ? "SIGILL"
                     : number == SIGBUS ? "SIGBUS" : "SIGABRT";
  uint8_t* at = (uint8_t*)info->si_addr;
  if (self && number == SIGSEGV && at >= self->stack && at < self->stack + GUARD_BYTES)
    snprintf(control->text, TEXT_BYTES, "its stack of %d KiB overflowed", int(STACK_BYTES >> 10));
  else if (number == SIGSEGV && uint64_t(at) < uint64_t(control->ub_bytes))
    snprintf(control->text, TEXT_BYTES,
             "%s: it touched memory at %p, which is not its own; if that is a place in UB: there GetValue and SetValue "
             "are modelled, and numbers behind names that are declared as __ubuf__ pointers (p[i], *p)",
             name, info->si_addr);
  else if (number == SIGSEGV || number == SIGBUS)
    snprintf(control->text, TEXT_BYTES, "%s: it touched memory at %p, which is not its own", name, info->si_addr);
  else
    snprintf(control->text, TEXT_BYTES, "%s", name);
  hand_over(Status::CRASHED);
  _exit(3);
}

inline void catch_signals() {
  static uint8_t stack[1 << 15];
  stack_t other{};
  other.ss_sp = stack;
  other.ss_size = sizeof stack;
  sigaltstack(&other, nullptr);
  struct sigaction action{};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigaction(number, &action, nullptr);
}

inline void make_core(int64_t index) {
  Core& core = cores[index];
  int64_t cubes = control->cubes_per_block, vectors = control->vectors_per_block;
  core.index = index;
  if (!control->is_split) {
    core.block = index;
    core.is_cube = core.is_vector = true;
  } else {  // Cube cores come first
    int64_t cube_cores = control->blocks_at_once * cubes;
    core.is_cube = index < cube_cores;
    core.is_vector = !core.is_cube;
    int64_t of_kind = core.is_cube ? index : index - cube_cores;
    core.block = core.is_cube ? of_kind : of_kind / vectors;
    core.sub_block = core.is_cube ? 0 : of_kind % vectors;
  }
  core.stack = (uint8_t*)mmap(nullptr, STACK_BYTES + GUARD_BYTES, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (core.stack == MAP_FAILED) _exit(4);
  mprotect(core.stack, GUARD_BYTES, PROT_NONE);
  getcontext(&core.context);
  core.context.uc_stack.ss_sp = core.stack + GUARD_BYTES;
  core.context.uc_stack.ss_size = STACK_BYTES;
  core.context.uc_link = &scheduler;
  makecontext(&core.context, core_main, 0);
}

// What the pointers of a list of tensors, or in a struct, are in this process.
inline void place_pointers() {
  for (int64_t i = 0; i < control->relocation_count; i++) {
    uint64_t address;
    memcpy(&address, gm + control->relocations[i], sizeof address);
    address += (uint64_t)gm;
    memcpy(gm + control->relocations[i], &address, sizeof address);
  }
  for (int64_t i = 0; i < control->argument_count; i++) {
    const Argument& given = control->arguments[i];
    if (ArgumentKind(given.kind) != ArgumentKind::LIST) continue;
    uint64_t* words = (uint64_t*)(gm + given.word);
    for (uint64_t at = words[0] / 8; at < uint64_t(given.size) / 8; at++) words[at] += (uint64_t)gm;
  }
}

// Where a pointer to global memory means: into the tensor of tables instead of the program.
template <class T> inline T* in_memory(T* pointer) {
  for (int i = 0; i < image_count; i++)
    if ((const uint8_t*)pointer >= images[i].begin && (const uint8_t*)pointer < images[i].end)
      return (T*)(gm + images[i].to + ((const uint8_t*)pointer - images[i].begin));
  return pointer;
}

inline int serve(int argc, char** argv, void (*kernel)()) {
  if (argc != 5) {
    fprintf(stderr, "this program is run by npu_sim.ascendc\n");
    return 2;
  }
  int shared = atoi(argv[1]), memory = atoi(argv[2]);
  ask_fd = atoi(argv[3]);
  answer_fd = atoi(argv[4]);
  auto map = [](int fd, size_t size) { return mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); };
  void* at = map(shared, ROWS_AT + HALVES * ROW_CAPACITY * sizeof(Row));
  if (at == MAP_FAILED) return 4;
  control = (Control*)at;
  if (control->layout != LAYOUT) return 187;  // of another version, which process.py says
  rows = all_rows = (Row*)((uint8_t*)at + ROWS_AT);
  at = map(memory, control->gm_bytes);
  if (at == MAP_FAILED) return 4;
  gm = (uint8_t*)at;
  at = map(memory, control->gm_bytes);
  if (at == MAP_FAILED) return 4;
  stored_gm = (uint8_t*)at;
  place_pointers();
  int64_t tables = control->tables;
  if (tables >= 0) dl_iterate_phdr(register_images, &tables);
  Pages all{0, control->gm_bytes};
  are_watched = allow(all, PROT_NONE);
  if (!are_watched) control->looks[control->look_count++] = control->stores[control->store_count++] = all;
  the_kernel = kernel;
  handed_over = milliseconds();
  catch_signals();
  take_standard_output();
  cores = new Core[control->cores];
  for (int64_t i = 0; i < control->cores; i++) make_core(i);
  BlockLocals own(control->cores);
  int64_t seen = -1, rounds = 0;
  for (int64_t ended = 0; ended < control->cores;) {
    bool moved = false;
    for (int64_t i = 0; i < control->cores; i++) {
      if (cores[i].wait != Wait::NONE) continue;
      self = &cores[i];
      control->core = i;
      own.enter(i);
      swapcontext(&scheduler, &self->context);
      own.leave(i);
      moved = true;
      ended += self->wait == Wait::ENDED;
      if (from_first) i = -1;
      from_first = false;
    }
    if (moved || look_again(seen, rounds)) continue;
    const Core* stuck = nullptr;
    for (int64_t i = control->cores - 1; i >= 0; i--)
      if (cores[i].wait == Wait::FLAG || cores[i].wait == Wait::MESSAGE || cores[i].wait == Wait::LOOK ||
          (ended && cores[i].wait == Wait::SYNC))
        stuck = &cores[i];
    if (stuck) {
      self = &cores[stuck->index];
      control->core = self->index;
      if (self->wait == Wait::SYNC)
        snprintf(control->text, TEXT_BYTES, "SyncAll must be reached by every core, not be skipped by one that returned");
      else if (self->wait == Wait::LOOK)
        snprintf(control->text, TEXT_BYTES, "%s must find what another core stores in global memory, not wait for ever",
                 self->awaited_by);
      else if (self->wait == Wait::MESSAGE)
        snprintf(control->text, TEXT_BYTES,
                 "REGIST_MATMUL_OBJ must be reached by every vector core of the block, not be waited for for ever");
      else
        snprintf(control->text, TEXT_BYTES, "CrossCoreWaitFlag(%d) must be answered by a set, not wait for ever",
                 self->awaited);
      hand_over(Status::DEADLOCK);
      return 3;
    }
    settle_before_looks();
    for (int64_t i = 0; i < control->cores; i++) cores[i].wait = Wait::NONE;
  }
  self = nullptr;
  hand_over(Status::DONE);
  return 0;
}

}  // namespace npusim
