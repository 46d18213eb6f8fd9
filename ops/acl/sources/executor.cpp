#include "executor.h"

#include <cstdio>

#include "arrays.h"
#include "memory.h"
#include "messages.h"
#include "python.h"
#include "runtime.h"

namespace npu_sim {

// A planned call. Its plan is kept by Python, by number.
struct Executor : Object {
    static constexpr Kind kind = Kind::executor;
    std::string name;
    int64_t call = 0, is_deterministic = 0;
    bool is_repeatable = false, is_stale = false;  // stale: a tensor's address was set since it was planned
    std::vector<int64_t> words;
    std::vector<Call::Use> uses;

    aclnnStatus plan(const Bridge &bridge, uint64_t &workspace_size) {
        int64_t results[2] = {0, 0};  // bytes of the workspace, number of the call
        const Unwatched unwatched;
        const int64_t status = bridge.plan(name.c_str(), words.data(), static_cast<int64_t>(words.size()),
                                           is_deterministic, results);
        if (status == ACLNN_SUCCESS) {
            workspace_size = static_cast<uint64_t>(results[0]);
            call = results[1];
        }
        return static_cast<aclnnStatus>(status);
    }

    // Plan once more behind aclSet*TensorAddr.
    aclnnStatus renew(const Bridge &bridge) {
        const int64_t before = call;
        uint64_t size = 0;
        if (const aclnnStatus status = plan(bridge, size)) return status;
        const Unwatched unwatched;
        bridge.forget(before);
        is_stale = false;
        return static_cast<aclnnStatus>(bridge.set_repeatable(call));
    }

    ~Executor() override {
        if (const Bridge *bridge = running_python()) {
            const Unwatched unwatched;
            bridge->forget(call);
        }
    }
};

template <class Type>
std::shared_ptr<Type> Call::alive(const char *what, const void *value) {
    auto found = find<Type>(value);
    if (found == nullptr && value != nullptr && status_ == ACLNN_SUCCESS)
        status_ = refuse(ACLNN_ERR_PARAM_INVALID, phase_.c_str(),
                         std::string(what) + " must be a live " + name_of(Type::kind) + ", not " +
                             describe(Type::kind, value));
    if (found == nullptr) words_.push_back(0);
    return found;
}

namespace {

template <class Values>
void append(std::vector<int64_t> &words, const Values &values) {
    words.push_back(static_cast<int64_t>(values.size()));
    words.insert(words.end(), values.begin(), values.end());
}

// Where the bytes of a tensor are, and how many: zeros if that is no device memory, which phase 2 then says.
std::pair<int64_t, int64_t> bytes_at(const char *data) {
    const auto memory = find_device(data);
    const size_t offset = memory ? static_cast<size_t>(data - memory->device) : 0;
    if (memory == nullptr || offset > memory->size) return {0, 0};
    return {reinterpret_cast<int64_t>(memory->backing + offset), static_cast<int64_t>(memory->size - offset)};
}

}  // namespace

Call &Call::output(const char *what, aclTensor *value) {
    tensor(what, value);
    uses_.back().is_output = true;
    return *this;
}

Call &Call::tensor(const char *what, const aclTensor *value) {
    const auto own = alive<Tensor>(what, value);
    uses_.push_back({what, value, false});
    if (own == nullptr) return *this;
    words_.insert(words_.end(), {1, own->data_type, own->format, own->offset});
    append(words_, own->view);
    if (own->has_strides)
        append(words_, own->strides);
    else
        words_.push_back(-1);
    append(words_, own->storage);
    uses_.back().data = own->data;
    uses_.back().byte_count = own->byte_count();
    uses_.back().place = words_.size();
    const auto [address, bytes] = bytes_at(own->data);
    words_.insert(words_.end(), {address, bytes});
    return *this;
}

Call &Call::ints(const char *what, const aclIntArray *value) {
    if (const auto own = alive<IntArray>(what, value)) {
        words_.push_back(2);
        append(words_, own->values);
    }
    return *this;
}

Call &Call::bools(const char *what, const aclBoolArray *value) {
    if (const auto own = alive<BoolArray>(what, value)) {
        words_.push_back(4);
        append(words_, own->values);
    }
    return *this;
}

Call &Call::number(int64_t value) {
    words_.insert(words_.end(), {3, value});
    return *this;
}

aclnnStatus Call::plan(uint64_t *workspaceSize, aclOpExecutor **executor) {
    if (workspaceSize == nullptr || executor == nullptr)
        return refuse(ACLNN_ERR_PARAM_NULLPTR, phase_.c_str(),
                      std::string(workspaceSize ? "executor" : "workspaceSize") + " must be an address, not a null pointer");
    *workspaceSize = 0;
    *executor = nullptr;
    if (status_ != ACLNN_SUCCESS) return status_;
    const Bridge *bridge = python(phase_.c_str());
    if (bridge == nullptr) return ACLNN_ERR_INNER;
    auto made = std::make_shared<Executor>();
    made->name = name_;
    made->words = std::move(words_);
    made->uses = std::move(uses_);
    made->is_deterministic = is_deterministic();
    uint64_t size = 0;
    if (const aclnnStatus status = made->plan(*bridge, size)) return status;
    *workspaceSize = size;
    *executor = static_cast<aclOpExecutor *>(add_object(Kind::executor, std::move(made)));
    return ACLNN_SUCCESS;
}

namespace {

aclnnStatus check_memory(const char *name, const std::string &what, const void *address, uint64_t byte_count,
                         std::vector<AllocationPtr> &held) {
    const auto memory = find_device(address);
    if (memory == nullptr)
        return refuse(ACLNN_ERR_PARAM_INVALID, name, what + " must be live device memory, not " + describe_address(address));
    const auto offset = static_cast<uint64_t>(static_cast<const char *>(address) - memory->device);
    if (offset > memory->size || byte_count > memory->size - offset)
        return refuse(ACLNN_ERR_PARAM_INVALID, name,
                      what + " must have " + std::to_string(byte_count) + " bytes, not the " +
                          std::to_string(memory->size - std::min<uint64_t>(offset, memory->size)) + " left of " +
                          memory->describe());
    held.push_back(memory);
    return ACLNN_SUCCESS;
}

}  // namespace

aclnnStatus launch(const char *name, void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, void *stream) {
    const auto own = find<Executor>(executor);
    if (own == nullptr)
        return refuse(executor == nullptr ? ACLNN_ERR_PARAM_NULLPTR : ACLNN_ERR_PARAM_INVALID, name,
                      "executor must be one that has not run, not " + describe(Kind::executor, executor));
    const Bridge *bridge = python(name);
    if (bridge == nullptr) return ACLNN_ERR_INNER;
    if (const int status = check_stream(name, stream)) return status;
    std::vector<AllocationPtr> held;
    if (workspace != nullptr) {
        const auto status = check_memory(name, "workspace", workspace, workspaceSize, held);
        if (status != ACLNN_SUCCESS) return status;
    }
    for (const auto &use : own->uses) {
        if (use.data == nullptr) continue;  // Python says what it is
        const auto status = check_memory(name, std::string(use.what) + " data", use.data, use.byte_count, held);
        if (status != ACLNN_SUCCESS) return status;
    }
    if (own->is_stale) {
        const auto status = own->renew(*bridge);
        if (status != ACLNN_SUCCESS) return status;
    }
    int64_t run = 0;
    aclnnStatus status;
    {
        const Unwatched unwatched;
        status = static_cast<aclnnStatus>(bridge->accept(name, own->call, workspace, workspaceSize, &run));
    }
    if (status != ACLNN_SUCCESS) return status;
    if (!own->is_repeatable) remove_object(Kind::executor, executor);
    const auto work = [own, bridge, run, held] {
        const Unwatched unwatched;
        const int status = static_cast<int>(bridge->run(run));
        note_filled(held);
        has_computed();
        return status;
    };
    return submit(name, stream, work, std::move(held));
}

namespace {

enum class Side { input, output, any };

// What aclSet*TensorAddr does: the tensor and the call get another address. The tensor says which of the call's it is;
// the index only has to be one that there is, as with CANN.
aclnnStatus set_address(const char *call, aclOpExecutor *executor, size_t index, aclTensor *tensor, void *address,
                        Side side) {
    const auto own = find<Executor>(executor);
    const auto named = find<Tensor>(tensor);
    if (executor == nullptr || tensor == nullptr)
        return refuse(ACLNN_ERR_INNER_NULLPTR, call,
                      std::string(executor ? "tensor" : "executor") + " must be an object, not a null pointer");
    if (own == nullptr || !own->is_repeatable)
        return refuse(ACLNN_ERR_PARAM_INVALID, call,
                      "executor must be a repeatable one, not " +
                          (own ? "one that runs once" : describe(Kind::executor, executor)));
    size_t count = 0;
    decltype(own->uses.data()) found = nullptr;
    for (auto &use : own->uses) {
        if (side != Side::any && use.is_output != (side == Side::output)) continue;
        ++count;
        if (use.tensor == tensor) found = &use;
    }
    if (index >= count)
        return refuse(ACLNN_ERR_PARAM_INVALID, call,
                      "index must be below " + std::to_string(count) + ", not " + std::to_string(index) + " (" +
                          own->name + ")");
    if (named == nullptr || found == nullptr)
        return refuse(ACLNN_ERR_PARAM_INVALID, call,
                      "tensor must be one that " + own->name + " was planned with, not " +
                          (named ? "another" : describe(Kind::tensor, tensor)));
    named->data = found->data = static_cast<char *>(address);
    const auto [at, bytes] = bytes_at(found->data);
    own->words[found->place] = at;
    own->words[found->place + 1] = bytes;
    own->is_stale = true;
    return ACLNN_SUCCESS;
}

aclnnStatus no_lists(const char *call, const void *executor) {
    if (executor == nullptr)
        return refuse(ACLNN_ERR_INNER_NULLPTR, call, "executor must be an object, not a null pointer");
    return refuse(ACLNN_ERR_PARAM_INVALID, call, "executor must be of an operator with tensor lists, which none here has");
}

}  // namespace
}  // namespace npu_sim

using npu_sim::Kind;
using npu_sim::Side;
using npu_sim::refuse;

extern "C" {

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor *executor) {
    const char *call = "aclSetAclOpExecutorRepeatable";
    const auto own = npu_sim::find<npu_sim::Executor>(executor);
    if (own == nullptr)
        return refuse(executor == nullptr ? ACLNN_ERR_PARAM_NULLPTR : ACLNN_ERR_PARAM_INVALID, call,
                      "executor must be one that has not run, not " + npu_sim::describe(Kind::executor, executor));
    const auto *bridge = npu_sim::python(call);
    if (bridge == nullptr) return ACLNN_ERR_INNER;
    const npu_sim::Unwatched unwatched;
    const auto status = static_cast<aclnnStatus>(bridge->set_repeatable(own->call));
    if (status == ACLNN_SUCCESS) own->is_repeatable = true;
    return status;
}

aclnnStatus aclSetTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor, void *addr) {
    return npu_sim::set_address("aclSetTensorAddr", executor, index, tensor, addr, Side::any);
}

aclnnStatus aclSetInputTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor, void *addr) {
    return npu_sim::set_address("aclSetInputTensorAddr", executor, index, tensor, addr, Side::input);
}

aclnnStatus aclSetOutputTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor, void *addr) {
    return npu_sim::set_address("aclSetOutputTensorAddr", executor, index, tensor, addr, Side::output);
}

aclnnStatus aclSetDynamicTensorAddr(aclOpExecutor *executor, size_t, const size_t, aclTensorList *, void *) {
    return npu_sim::no_lists("aclSetDynamicTensorAddr", executor);
}

aclnnStatus aclSetDynamicInputTensorAddr(aclOpExecutor *executor, size_t, const size_t, aclTensorList *, void *) {
    return npu_sim::no_lists("aclSetDynamicInputTensorAddr", executor);
}

aclnnStatus aclSetDynamicOutputTensorAddr(aclOpExecutor *executor, size_t, const size_t, aclTensorList *, void *) {
    return npu_sim::no_lists("aclSetDynamicOutputTensorAddr", executor);
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor *executor) {
    if (executor == nullptr || npu_sim::remove_object(Kind::executor, executor)) return ACLNN_SUCCESS;
    return refuse(ACLNN_ERR_PARAM_INVALID, "aclDestroyAclOpExecutor",
                  "executor must be one that has not run or is repeatable, not " +
                      npu_sim::describe(Kind::executor, executor));
}
}
