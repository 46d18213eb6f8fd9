// Launches of the program's own kernels, which ops.acl.bridge runs on the emulator.
#include "npusim/launched.h"

#include <cstring>
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
    std::string name, parameters, module, key, call;
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

    // Bytes of a struct, and the pointers to device memory in it, which stand at multiples of their size: 6 bytes size
    // count, and of each place memory size offset; without pointers 3 bytes size.
    void object(const npu_sim_argument &given) {
        bytes.emplace_back(static_cast<const char *>(given.bytes), static_cast<size_t>(given.word));
        std::vector<int64_t> inside;
        for (int64_t at = 0; at + 8 <= given.word; at += 8) {
            const char *address;
            memcpy(&address, bytes.back().data() + at, 8);
            const auto memory = address == nullptr ? nullptr : find_device(address);
            if (memory == nullptr) continue;
            inside.insert(inside.end(), {at, reinterpret_cast<int64_t>(memory->backing),
                                         static_cast<int64_t>(memory->size), address - memory->device});
            held.push_back(memory);
        }
        if (inside.empty()) {
            words.insert(words.end(), {3, 0, given.word});
        } else {
            words.insert(words.end(), {6, 0, given.word, static_cast<int64_t>(inside.size() / 4)});
            words.insert(words.end(), inside.begin(), inside.end());
        }
    }

    void argument(const std::string &what, const npu_sim_argument &given) {
        switch (given.kind) {
            case 0: pointer(what, given.word); break;
            case 3: object(given); break;
            default: words.insert(words.end(), {given.kind, given.word});
        }
    }

    // How many words an argument takes that begins at one of them.
    size_t length_at(size_t at) const {
        switch (words[at]) {
            case 0: return 4;
            case 3: return 3;
            case 4: return 1;
            case 6: return 4 + 4 * static_cast<size_t>(words[at + 3]);
            default: return 2;
        }
    }

    // How many tensors a list (ListTensorDesc) at a place in memory has; 0 if there is no list, or none of its pointers
    // is live device memory, as then it may be anything. `at`: the word with the first pointer.
    static int64_t list_at(const char *place, int64_t room, int64_t &at) {
        const auto word = [&](int64_t i) {
            int64_t value;
            memcpy(&value, place + 8 * i, 8);
            return value;
        };
        if (room < 24 || word(0) % 8 || word(0) < 16 || word(0) >= room) return 0;
        at = word(0) / 8;
        int64_t count = 0, head = 1;
        for (; head < at; head += 1 + (word(head) & 0xFFFFFFFF)) ++count;
        if (head != at || count > room / 8 - at) return 0;
        for (int64_t i = 0; i < count; ++i)
            if (find_device(reinterpret_cast<const char *>(word(at + i))) != nullptr) return count;
        return 0;
    }

    // The words with the pointers of lists followed, as memory is when the launch runs: 5 memory size count, and of each
    // tensor memory size offset.
    std::vector<int64_t> followed(std::vector<AllocationPtr> &theirs, std::string &bad) const {
        std::vector<int64_t> all;
        for (size_t i = 0; i < words.size();) {
            const size_t length = length_at(i);
            int64_t at = 0, count = 0;
            const auto *place = words[i] == 0 ? reinterpret_cast<const char *>(words[i + 1] + words[i + 3]) : nullptr;
            if (place != nullptr) count = list_at(place, words[i + 2] - words[i + 3], at);
            if (count == 0) {
                all.insert(all.end(), words.begin() + i, words.begin() + i + length);
            } else {
                all.insert(all.end(), {5, reinterpret_cast<int64_t>(place), 8 * (at + count), count});
                for (int64_t k = 0; k < count; ++k) {
                    const char *target;
                    memcpy(&target, place + 8 * (at + k), 8);
                    theirs.push_back(find_device(target));
                    if (theirs.back() == nullptr) {
                        bad = "tensor " + std::to_string(k) + " of a list must be live device memory, not " +
                              describe_address(target);
                        return {};
                    }
                    all.insert(all.end(), {reinterpret_cast<int64_t>(theirs.back()->backing),
                                           static_cast<int64_t>(theirs.back()->size), target - theirs.back()->device});
                }
            }
            i += length;
        }
        return all;
    }

    // Words that tell which bytes of memory were written before, if checks are on: 7 memory count begin end .. of each.
    static void tell_filled(const std::vector<AllocationPtr> &all, std::vector<int64_t> &told) {
        if (!wants_checks()) return;
        for (const auto &one : all) {
            const std::vector<int64_t> bounds = filled_bytes(*one);
            told.insert(told.end(),
                        {7, reinterpret_cast<int64_t>(one->backing), static_cast<int64_t>(bounds.size() / 2)});
            told.insert(told.end(), bounds.begin(), bounds.end());
        }
    }

    // Point the words of structs at the copies, which move no more.
    void settle() {
        size_t next = 0;
        for (size_t at = 0; at < words.size(); at += length_at(at))
            if (words[at] == 3 || words[at] == 6) words[at + 1] = reinterpret_cast<int64_t>(bytes[next++].data());
        kernel.name = name.c_str();
        kernel.parameters = parameters.c_str();
        kernel.module = module.c_str();
        if (kernel.key != nullptr) kernel.key = key.c_str();
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
    launch->key = kernel->key == nullptr ? "" : kernel->key;
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
        std::vector<AllocationPtr> theirs;
        std::string bad;
        const std::vector<int64_t> followed = launch->followed(theirs, bad);
        if (!bad.empty()) return static_cast<int>(refuse(ACL_ERROR_RT_AICORE_EXCEPTION, launch->call.c_str(), bad));
        std::vector<int64_t> words;
        Launch::tell_filled(launch->held, words);
        Launch::tell_filled(theirs, words);
        words.insert(words.end(), followed.begin(), followed.end());
        const int status = static_cast<int>(bridge->launch(&launch->kernel, launch->call.c_str(), launch->blocks,
                                                           words.data(), static_cast<int64_t>(words.size())));
        // which of its bytes a kernel has written is not asked
        note_filled(launch->held);
        note_filled(theirs);
        has_computed();
        return status;
    };
    return submit(call, stream, work, launch->held);
}
