// How vector cores ask the Cube core of their block for matrix products: a queue of messages for each of them.
//
// ASSUMED: a message and its answer are flags of mode 3 (`npu_sim.program.cross_core`), which take as long as other
// flags; a device posts them in memory that the Cube core polls. The Cube core serves its vector cores in turns.
#pragma once
#include <deque>
#include <functional>

#include "npusim/matmul_cube.h"

namespace npusim {

constexpr int MESSAGE_MODE = 3, MAX_OBJECTS = 4, MAX_VECTORS = 2;
// Answers that a vector core does not wait for at once; its counter has room for 15.
constexpr int MAX_OPEN = 8;

struct Message {
  int object = 0;
  Here here{};
  std::function<void(void*)> work;  // null: the vector core asks nothing more
};

struct Service {
  void* objects[MAX_OBJECTS] = {};
  std::deque<Message> waiting[MAX_VECTORS];
};

inline Service& service_of(int64_t block) {
  static std::deque<Service> all(size_t(control->blocks));
  return all[size_t(block)];
}

inline int message_flag(int object, int64_t vector) { return int(2 * object + vector); }

// Sets a flag of one core of the other kind in the block, behind what `on` has to do.
inline void message_set(Here here, int64_t on, int flag, int64_t vector) {
  emit_cross_core_set_flag(here, MESSAGE_MODE, on, flag);
  control->crosses = 1;
  for (int64_t i = 0; i < control->cores; i++) {
    Core& core = cores[i];
    if (core.block != self->block || core.is_cube == self->is_cube || (core.is_vector && core.sub_block != vector)) continue;
    core.counters[flag]++;
    if ((core.wait == Wait::FLAG && core.awaited == flag) || core.wait == Wait::MESSAGE) core.wait = Wait::NONE;
  }
}

inline void message_wait(Here here, int flag) {
  emit_cross_core_wait_flag(here, flag);
  cross_wait(flag);
}

// The Cube core's part: until no vector core asks any more.
inline void serve_products(Here here) {
  Service& service = service_of(self->block);
  int64_t open = control->vectors_per_block, next = 0;
  while (open) {
    int64_t vector = next;
    while (service.waiting[vector].empty()) {
      vector = (vector + 1) % control->vectors_per_block;
      if (vector != next) continue;
      self->wait = Wait::MESSAGE;
      end_lot(Status::ROWS);
      swapcontext(&self->context, &scheduler);
    }
    Message message = std::move(service.waiting[vector].front());
    service.waiting[vector].pop_front();
    message_wait(message.here, message_flag(message.object, vector));
    if (message.work) message.work(service.objects[message.object]);
    else open--;
    next = (vector + 1) % control->vectors_per_block;
  }
}

inline void post(Here here, int object, std::function<void(void*)> work) {
  service_of(self->block).waiting[self->sub_block].push_back({object, here, std::move(work)});
  message_set(here, pipe::MTE3, message_flag(object, self->sub_block), 0);
}
inline void answer(Here here, int object, int64_t vector) {
  message_set(here, pipe::FIX, message_flag(object, vector), vector);
}

// A vector core's part of memory for operands and results in UB, behind those of the other vector cores.
inline int64_t scratch_of(int64_t number) {
  int64_t index = self->block * control->vectors_per_block + self->sub_block;
  return control->scratch + (index * 3 + number) * control->ub_bytes;
}
template <class T> inline AscendC::GlobalTensor<T> scratch_tensor(int64_t number) {
  AscendC::GlobalTensor<T> tensor;
  tensor.SetGlobalBuffer((T*)(gm + scratch_of(number)));
  return tensor;
}

// What REGIST_MATMUL_OBJ leaves in the scope of a vector core: at its end the core asks nothing more.
class ProductScope {
 public:
  ~ProductScope() {
    if (is_client) post(here, 0, nullptr);
  }
  bool is_client = false;
  Here here{};
};
}  // namespace npusim
