// How an operator looks in graphs (REG_OP), which headers of libraries say beside its tiling: nothing asks for it here.
#pragma once
#include "npusim/graph.h"

namespace npusim {
struct InGraphs {
  InGraphs npusim_said() const { return {}; }
};
}  // namespace npusim
#define REG_OP(op) static const ::npusim::InGraphs npusim_in_graphs_of_##op = ::npusim::InGraphs()
#define INPUT(...) npusim_said()
#define OPTIONAL_INPUT(...) npusim_said()
#define DYNAMIC_INPUT(...) npusim_said()
#define OUTPUT(...) npusim_said()
#define DYNAMIC_OUTPUT(...) npusim_said()
#define ATTR(...) npusim_said()
#define REQUIRED_ATTR(...) npusim_said()
#define OP_END_FACTORY_REG(op) npusim_said();
