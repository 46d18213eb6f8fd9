// A call of an operator in its two phases, for the functions that each operator has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aclnn/acl_meta.h"
#include "handles.h"

namespace npu_sim {

struct Tensor : Object {
    static constexpr Kind kind = Kind::tensor;
    std::vector<int64_t> view, strides, storage;
    int64_t offset = 0;
    int data_type = 0, format = 0;
    bool has_strides = false;
    char *data = nullptr;
    // Bytes from `data` on.
    uint64_t byte_count() const;
};

// Collects the arguments of phase 1 as words for Python (ops.acl.bridge reads them). Each argument is one of
//   0                    a null pointer
//   1 type format offset  n view..  n strides.. (n -1: none)  n storage..  address bytes   a tensor; address 0: no memory
//   2 n values..          an array of int64
//   3 value               a number
//   4 n values..          an array of bool
class Call {
   public:
    explicit Call(const char *name) : name_(name), phase_(std::string(name) + "GetWorkspaceSize") {}

    Call &tensor(const char *what, const aclTensor *value);
    Call &output(const char *what, aclTensor *value);
    Call &ints(const char *what, const aclIntArray *value);
    Call &bools(const char *what, const aclBoolArray *value);
    Call &number(int64_t value);

    // Check and plan.
    aclnnStatus plan(uint64_t *workspaceSize, aclOpExecutor **executor);

   private:
    struct Use {
        const char *what;
        const void *tensor;
        bool is_output;
        char *data = nullptr;
        uint64_t byte_count = 0;
        size_t place = 0;  // of address and bytes among the words
    };
    friend struct Executor;
    template <class Type>
    std::shared_ptr<Type> alive(const char *what, const void *value);

    const char *name_;
    std::string phase_;
    aclnnStatus status_ = ACLNN_SUCCESS;
    std::vector<int64_t> words_;
    std::vector<Use> uses_;
};

// Phase 2 of the operator `name`.
aclnnStatus launch(const char *name, void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, void *stream);

}  // namespace npu_sim
