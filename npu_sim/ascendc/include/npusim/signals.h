// Words of global memory that some cores store and others poll: they order the cores as flags do.
//
// Whoever looks at the same word again and again gives way, so that others can store it. What a core did before it stored
// a word is done for those that see the new value: SetSignal says so where others may see the store (a line of the data
// cache that is cleaned, a store past it), WaitSignal where a core looks at a line that has such stores.
#pragma once
#include "npusim/settled.h"

namespace npusim {

constexpr int64_t CACHE_LINE_BYTES = 64, WORD_BYTES = 32, EVERY_LINE = -2;

struct Word {
  int64_t number;  // of 32 bytes
  int64_t sets = 0;
};
inline std::vector<Word> words;
// Stores that no one cleans the cache of, as most that SetValue makes, are not all remembered.
constexpr size_t MOST_STORED = 64;

inline int64_t& known_sets(size_t word) {
  if (self->known.size() <= word) self->known.resize(word + 1);
  return self->known[word];
}

// Others may see what the core has stored there.
inline void post(Here here, int64_t address, int64_t on = pipe::S) {
  if (control->cores == 1) return;
  int64_t number = address / WORD_BYTES;
  size_t at = 0;
  while (at < words.size() && words[at].number != number) at++;
  if (at == words.size()) words.push_back({number});
  control->crosses = 1;
  bool is_own = known_sets(at) == words[at].sets++;
  if (is_own) self->known[at]++;
  emit_set_signal(here, on, int64_t(at));
}

// The core looks there.
inline void see(Here here, int64_t address) {
  for (size_t at = 0; at < words.size(); at++)
    if (words[at].number == address / WORD_BYTES && known_sets(at) < words[at].sets) {
      self->known[at] = words[at].sets;
      emit_wait_signal(here, int64_t(at), words[at].sets);
    }
}

// The scalar unit has stored there, which stays in its cache.
inline void keep_in_cache(int64_t address) {
  if (control->cores == 1) return;
  int64_t number = address / WORD_BYTES;
  for (int64_t other : self->stored)
    if (other == number) return;
  if (self->stored.size() < MOST_STORED) self->stored.push_back(number);
}

inline void clean_cache(Here here, bool all, int64_t address = 0) {
  std::vector<int64_t> left;
  for (int64_t number : self->stored) {
    bool is_there = number * WORD_BYTES / CACHE_LINE_BYTES == address / CACHE_LINE_BYTES;
    if (all || is_there) post(here, number * WORD_BYTES);
    else left.push_back(number);
  }
  self->stored = left;
  self->cleaned = all ? EVERY_LINE : address / CACHE_LINE_BYTES;
  self->cleaned_at = self->row_count - self->looks.rows;
}

// Whether the core looks past its cache, of which it has just cleaned the line.
inline bool is_past_cache(int64_t address) {
  bool is_cleaned = self->cleaned == EVERY_LINE || self->cleaned == address / CACHE_LINE_BYTES;
  return is_cleaned && self->cleaned_at == self->row_count - self->looks.rows;
}

// The core has seen `value` there: returns whether it should look again when others have gone on.
constexpr int64_t LEAST_PATIENCE = 16, MOST_PATIENCE = 512;
inline bool looks_in_vain(int64_t address, uint64_t value) {
  Looks& looks = self->looks;
  if (int64_t others = self->row_count - looks.rows; others != looks.since) {
    looks.since = others;
    looks.again = looks.count = looks.next = 0;
    looks.patience = LEAST_PATIENCE;
  }
  // mostly the one behind the last, or the first again; who reads a long list is not searched for
  auto is_at = [&](int place) { return place < looks.count && looks.seen[place].address == address; };
  int at = is_at(looks.next) ? looks.next : 0;
  if (!is_at(at)) {
    if (looks.count == Looks::PLACES) return false;
    while (at < looks.count && !is_at(at)) at++;
    if (at == looks.count) looks.seen[looks.count++] = {address, ~value};
  }
  looks.next = at + 1;
  if (looks.seen[at].value != value) {
    looks.seen[at].value = value;
    looks.again = 0;
    return false;
  }
  if (++looks.again < looks.patience) return false;
  looks.again = 0;
  looks.patience = std::min(2 * looks.patience, MOST_PATIENCE);
  return true;
}

// Counts the rows of its life as ones that only look.
struct Looking {
  int64_t before = self->row_count;
  ~Looking() { self->looks.rows += self->row_count - before; }
};

// Global memory as all rows so far leave it has to be so before the core goes on.
template <class F> inline void wait_until(Here here, const char* call, F is_so) {
  if (!control->reads) refuse_read(here, call);
  for (settle_gm(here); !is_so(); settle_gm(here)) give_way(call);
}
}  // namespace npusim
