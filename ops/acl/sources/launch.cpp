// Launches of the program's own kernels, which ops.acl.bridge runs on the emulator.
#include "npusim/launched.h"

#include <string>
#include <vector>

#include "acl/acl_base.h"
#include "memory.h"
#include "messages.h"
#include "python.h"
#include "runtime.h"

namespace npu_sim {
namespace {

// A launch with all that it needs behind the call, which may be over when a stream comes to it.
struct Launch {
    std::string name, parameters, module, call;
    npu_sim_kernel kernel;
    int64_t blocks;
    std::vector<int64_t> words;
    std::vector<std::string> bytes;
    std::vector<AllocationPtr> held;
    std::string problem;

    // Words of an address, for Python: 0 memory size offset, or 4 for a null pointer.
    void pointer(const std::string &what, int64_t word) {
        const auto *address = reinterpret_cast<const char *>(word);
        const auto memory = find_device(address);
        const int64_t offset = memory ? address - memory->device : 0;
        if (memory != nullptr && offset <= static_cast<int64_t>(memory->size)) {
            words.insert(words.end(), {0, reinterpret_cast<int64_t>(memory->backing),
                                       static_cast<int64_t>(memory->size), offset});
            held.push_back(memory);
        } else if (address == nullptr) {
            words.push_back(4);
        } else if (problem.empty()) {
            problem = what + " must be live device memory, not " +
                      (memory ? "an address behind " + memory->describe() : describe_address(address));
        }
    }

    void argument(const std::string &what, const npu_sim_argument &given) {
        switch (given.kind) {
            case 0: pointer(what, given.word); break;
            case 3:
                bytes.emplace_back(static_cast<const char *>(given.bytes), static_cast<size_t>(given.word));
                words.insert(words.end(), {3, 0, given.word});
                break;
            default: words.insert(words.end(), {given.kind, given.word});
        }
    }

    // Point the words of structs at the copies, which move no more.
    void settle() {
        size_t next = 0;
        for (size_t at = 0; at < words.size(); at += words[at] == 0 ? 4 : words[at] == 3 ? 3 : words[at] == 4 ? 1 : 2)
            if (words[at] == 3) words[at + 1] = reinterpret_cast<int64_t>(bytes[next++].data());
        kernel.name = name.c_str();
        kernel.parameters = parameters.c_str();
        kernel.module = module.c_str();
    }
};

std::string parameter(const std::string &names, int64_t number) {
    size_t begin = 0;
    for (int64_t i = 0; i < number && begin < names.size(); ++i) begin = std::min(names.find(',', begin), names.size() - 1) + 1;
    const std::string own = names.substr(begin, names.find(',', begin) - begin);
    return own.empty() ? "argument " + std::to_string(number) : own;
}

}  // namespace
}  // namespace npu_sim

extern "C" int npu_sim_launch(const npu_sim_kernel *kernel, const char *file, int64_t line, int64_t blocks, void *stream,
                              const npu_sim_argument *arguments, int64_t count) {
    using namespace npu_sim;
    auto launch = std::make_shared<Launch>();
    launch->kernel = *kernel;
    launch->name = kernel->name;
    launch->parameters = kernel->parameters == nullptr ? "" : kernel->parameters;
    launch->module = kernel->module;
    launch->call = launch->name + "<<<>>> (" + file + ":" + std::to_string(line) + ")";
    launch->blocks = blocks;
    for (int64_t i = 0; i < count; ++i) launch->argument(parameter(launch->parameters, i), arguments[i]);
    launch->settle();
    const char *call = launch->call.c_str();
    const Bridge *bridge = python(call);
    int status = bridge == nullptr ? ACL_ERROR_RT_INTERNAL_ERROR : check_stream(call, stream);
    if (status == ACL_SUCCESS && !launch->problem.empty()) {
        // as on a device the launch itself is in order; who waits for the stream is told
        return submit(call, stream, [launch] {
            return refuse(ACL_ERROR_RT_AICORE_EXCEPTION, launch->call.c_str(), launch->problem);
        });
    }
    if (status != ACL_SUCCESS) {
        // a launch has no result that a program could look at
        report(launch->call + " gave " + std::to_string(status));
        return status;
    }
    const auto work = [launch, bridge] {
        const Unwatched unwatched;
        const int status = static_cast<int>(bridge->launch(&launch->kernel, launch->call.c_str(), launch->blocks,
                                               launch->words.data(), static_cast<int64_t>(launch->words.size())));
        has_computed();
        return status;
    };
    return submit(call, stream, work, launch->held);
}
