// Tensors, scalars, arrays and lists of the aclnn interface.
#include <algorithm>
#include <cstring>

#include "aclnn/aclnn_base.h"
#include "arrays.h"
#include "executor.h"
#include "messages.h"

namespace npu_sim {
namespace {

constexpr uint64_t MAX_AXES = 64;  // no operator takes as many

struct Scalar : Object {
    static constexpr Kind kind = Kind::scalar;
    int data_type;
    char bytes[16];
};

template <class Type>
aclnnStatus destroy(const char *call, const void *name) {
    if (name == nullptr || remove_object(Type::kind, name)) return ACLNN_SUCCESS;
    return refuse(ACLNN_ERR_PARAM_INVALID, call,
                  std::string("argument must be a live ") + name_of(Type::kind) + ", not " + describe(Type::kind, name));
}

template <class Own, class Type, class Value>
Type *create(const char *call, const Value *values, uint64_t count) {
    if (values == nullptr && count > 0) {
        refuse(ACLNN_ERR_PARAM_NULLPTR, call, "value must be " + std::to_string(count) + " values, not a null pointer");
        return nullptr;
    }
    auto made = std::make_shared<Own>();
    made->values.assign(values, values + count);
    return static_cast<Type *>(add_object(Own::kind, std::move(made)));
}

// A list keeps the objects of its members: AscendCL destroys them with the list.
template <class Type, class Member>
Type *create_list(const char *call, Kind kind, Kind member, const Member *const *values, uint64_t count) {
    if (values == nullptr && count > 0) {
        refuse(ACLNN_ERR_PARAM_NULLPTR, call, "value must be " + std::to_string(count) + " values, not a null pointer");
        return nullptr;
    }
    auto made = std::make_shared<Array<const void *>>();
    for (uint64_t i = 0; i < count; ++i) {
        if (find_object(member, values[i]) == nullptr) {
            refuse(ACLNN_ERR_PARAM_INVALID, call,
                   "value[" + std::to_string(i) + "] must be a live " + name_of(member) + ", not " +
                       describe(member, values[i]));
            return nullptr;
        }
        made->values.push_back(values[i]);
    }
    return static_cast<Type *>(add_object(kind, std::move(made)));
}

aclnnStatus destroy_list(const char *call, Kind kind, Kind member, const void *name) {
    if (name == nullptr) return ACLNN_SUCCESS;
    const auto gone = std::static_pointer_cast<Array<const void *>>(remove_object(kind, name));
    if (gone == nullptr)
        return refuse(ACLNN_ERR_PARAM_INVALID, call,
                      std::string("array must be a live ") + name_of(kind) + ", not " + describe(kind, name));
    for (const void *one : gone->values) remove_object(member, one);
    return ACLNN_SUCCESS;
}

template <class Type>
std::shared_ptr<Type> of(const char *call, const char *what, const void *name, Kind kind, aclnnStatus &status) {
    const auto found = std::static_pointer_cast<Type>(find_object(kind, name));
    status = ACLNN_SUCCESS;
    if (found == nullptr)
        status = refuse(name == nullptr ? ACLNN_ERR_PARAM_NULLPTR : ACLNN_ERR_PARAM_INVALID, call,
                        std::string(what) + " must be a live " + name_of(kind) + ", not " + describe(kind, name));
    return found;
}

template <class Out>
aclnnStatus no_room(const char *call, const Out *out) {
    if (out != nullptr) return ACLNN_SUCCESS;
    return refuse(ACLNN_ERR_PARAM_NULLPTR, call, "what is returned must have an address, not a null pointer");
}

template <class Value>
aclnnStatus size_of(const char *call, Kind kind, const void *name, uint64_t *size) {
    aclnnStatus status;
    const auto found = of<Array<Value>>(call, "array", name, kind, status);
    if (status == ACLNN_SUCCESS) status = no_room(call, size);
    if (status == ACLNN_SUCCESS) *size = found->values.size();
    return status;
}

aclnnStatus copy_out(const char *call, const aclTensor *tensor, std::vector<int64_t> Tensor::*field, int64_t **values,
                     uint64_t *count) {
    aclnnStatus status;
    const auto found = of<Tensor>(call, "tensor", tensor, Kind::tensor, status);
    if (status == ACLNN_SUCCESS) status = no_room(call, values);
    if (status == ACLNN_SUCCESS) status = no_room(call, count);
    if (status != ACLNN_SUCCESS) return status;
    const auto &own = (*found).*field;
    *count = own.size();
    *values = new int64_t[own.size()];
    std::copy(own.begin(), own.end(), *values);
    return ACLNN_SUCCESS;
}

template <class Value, class Read>
aclnnStatus give(const char *call, const aclTensor *tensor, Value *value, Read read) {
    aclnnStatus status;
    const auto found = of<Tensor>(call, "tensor", tensor, Kind::tensor, status);
    if (status == ACLNN_SUCCESS) status = no_room(call, value);
    if (status == ACLNN_SUCCESS) *value = static_cast<Value>(read(*found));
    return status;
}

std::vector<int64_t> contiguous(const std::vector<int64_t> &view) {
    std::vector<int64_t> strides(view.size(), 1);
    for (size_t axis = view.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * std::max<int64_t>(view[axis], 1);
    return strides;
}

}  // namespace

uint64_t Tensor::byte_count() const {
    uint64_t bytes = aclDataTypeSize(static_cast<aclDataType>(data_type));
    for (const int64_t extent : storage)
        if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) return UINT64_MAX;
    return bytes;
}

}  // namespace npu_sim

using npu_sim::Kind;
using npu_sim::refuse;

extern "C" {

aclTensor *aclCreateTensor(const int64_t *viewDims, uint64_t viewDimsNum, aclDataType dataType, const int64_t *stride,
                           int64_t offset, aclFormat format, const int64_t *storageDims, uint64_t storageDimsNum,
                           void *tensorData) {
    const char *call = "aclCreateTensor";
    const struct {
        const char *what;
        const int64_t *values;
        uint64_t count;
    } lists[] = {{"viewDims", viewDims, viewDimsNum}, {"storageDims", storageDims, storageDimsNum}};
    for (const auto &[what, values, count] : lists) {
        if (values == nullptr && count > 0) {
            refuse(ACLNN_ERR_PARAM_NULLPTR, call, std::string(what) + " must be extents, not a null pointer");
            return nullptr;
        }
        if (count > npu_sim::MAX_AXES) {
            refuse(ACLNN_ERR_PARAM_INVALID, call,
                   std::string(what) + "Num must be at most 64, not " + std::to_string(count));
            return nullptr;
        }
    }
    auto made = std::make_shared<npu_sim::Tensor>();
    made->view.assign(viewDims, viewDims + viewDimsNum);
    made->has_strides = stride != nullptr;
    made->strides = stride ? std::vector<int64_t>(stride, stride + viewDimsNum) : npu_sim::contiguous(made->view);
    made->storage.assign(storageDims, storageDims + storageDimsNum);
    made->offset = offset;
    made->data_type = dataType;
    made->format = format;
    made->data = static_cast<char *>(tensorData);
    return static_cast<aclTensor *>(npu_sim::add_object(Kind::tensor, std::move(made)));
}

aclScalar *aclCreateScalar(void *value, aclDataType dataType) {
    const size_t size = aclDataTypeSize(dataType);
    if (value == nullptr || size == 0 || size > sizeof npu_sim::Scalar::bytes) {
        refuse(value ? ACLNN_ERR_PARAM_INVALID : ACLNN_ERR_PARAM_NULLPTR, "aclCreateScalar",
               value ? "dataType must be of at most 16 bytes, not " + std::to_string(dataType)
                     : std::string("value must be an address, not a null pointer"));
        return nullptr;
    }
    auto made = std::make_shared<npu_sim::Scalar>();
    made->data_type = dataType;
    memcpy(made->bytes, value, size);
    return static_cast<aclScalar *>(npu_sim::add_object(Kind::scalar, std::move(made)));
}

aclIntArray *aclCreateIntArray(const int64_t *value, uint64_t size) {
    return npu_sim::create<npu_sim::IntArray, aclIntArray>("aclCreateIntArray", value, size);
}

aclFloatArray *aclCreateFloatArray(const float *value, uint64_t size) {
    return npu_sim::create<npu_sim::FloatArray, aclFloatArray>("aclCreateFloatArray", value, size);
}

aclBoolArray *aclCreateBoolArray(const bool *value, uint64_t size) {
    return npu_sim::create<npu_sim::BoolArray, aclBoolArray>("aclCreateBoolArray", value, size);
}

aclTensorList *aclCreateTensorList(const aclTensor *const *value, uint64_t size) {
    return npu_sim::create_list<aclTensorList>("aclCreateTensorList", Kind::tensor_list, Kind::tensor, value, size);
}

aclScalarList *aclCreateScalarList(const aclScalar *const *value, uint64_t size) {
    return npu_sim::create_list<aclScalarList>("aclCreateScalarList", Kind::scalar_list, Kind::scalar, value, size);
}

aclnnStatus aclDestroyTensor(const aclTensor *tensor) {
    return npu_sim::destroy<npu_sim::Tensor>("aclDestroyTensor", tensor);
}

aclnnStatus aclDestroyScalar(const aclScalar *scalar) {
    return npu_sim::destroy<npu_sim::Scalar>("aclDestroyScalar", scalar);
}

aclnnStatus aclDestroyIntArray(const aclIntArray *array) {
    return npu_sim::destroy<npu_sim::IntArray>("aclDestroyIntArray", array);
}

aclnnStatus aclDestroyFloatArray(const aclFloatArray *array) {
    return npu_sim::destroy<npu_sim::FloatArray>("aclDestroyFloatArray", array);
}

aclnnStatus aclDestroyBoolArray(const aclBoolArray *array) {
    return npu_sim::destroy<npu_sim::BoolArray>("aclDestroyBoolArray", array);
}

aclnnStatus aclDestroyTensorList(const aclTensorList *array) {
    return npu_sim::destroy_list("aclDestroyTensorList", Kind::tensor_list, Kind::tensor, array);
}

aclnnStatus aclDestroyScalarList(const aclScalarList *array) {
    return npu_sim::destroy_list("aclDestroyScalarList", Kind::scalar_list, Kind::scalar, array);
}

aclnnStatus aclGetViewShape(const aclTensor *tensor, int64_t **viewDims, uint64_t *viewDimsNum) {
    return npu_sim::copy_out("aclGetViewShape", tensor, &npu_sim::Tensor::view, viewDims, viewDimsNum);
}

aclnnStatus aclGetStorageShape(const aclTensor *tensor, int64_t **storageDims, uint64_t *storageDimsNum) {
    return npu_sim::copy_out("aclGetStorageShape", tensor, &npu_sim::Tensor::storage, storageDims, storageDimsNum);
}

aclnnStatus aclGetViewStrides(const aclTensor *tensor, int64_t **stridesValue, uint64_t *stridesNum) {
    return npu_sim::copy_out("aclGetViewStrides", tensor, &npu_sim::Tensor::strides, stridesValue, stridesNum);
}

aclnnStatus aclGetViewOffset(const aclTensor *tensor, int64_t *offset) {
    return npu_sim::give("aclGetViewOffset", tensor, offset, [](const npu_sim::Tensor &own) { return own.offset; });
}

aclnnStatus aclGetFormat(const aclTensor *tensor, aclFormat *format) {
    return npu_sim::give("aclGetFormat", tensor, format, [](const npu_sim::Tensor &own) { return own.format; });
}

aclnnStatus aclGetDataType(const aclTensor *tensor, aclDataType *dataType) {
    return npu_sim::give("aclGetDataType", tensor, dataType, [](const npu_sim::Tensor &own) { return own.data_type; });
}

aclnnStatus aclGetIntArraySize(const aclIntArray *array, uint64_t *size) {
    return npu_sim::size_of<int64_t>("aclGetIntArraySize", Kind::int_array, array, size);
}

aclnnStatus aclGetFloatArraySize(const aclFloatArray *array, uint64_t *size) {
    return npu_sim::size_of<float>("aclGetFloatArraySize", Kind::float_array, array, size);
}

aclnnStatus aclGetBoolArraySize(const aclBoolArray *array, uint64_t *size) {
    return npu_sim::size_of<bool>("aclGetBoolArraySize", Kind::bool_array, array, size);
}

aclnnStatus aclGetTensorListSize(const aclTensorList *tensorList, uint64_t *size) {
    return npu_sim::size_of<const void *>("aclGetTensorListSize", Kind::tensor_list, tensorList, size);
}

aclnnStatus aclGetScalarListSize(const aclScalarList *scalarList, uint64_t *size) {
    return npu_sim::size_of<const void *>("aclGetScalarListSize", Kind::scalar_list, scalarList, size);
}

aclnnStatus aclnnInit(const char *) { return ACLNN_SUCCESS; }

aclnnStatus aclnnFinalize(void) { return ACLNN_SUCCESS; }
}
