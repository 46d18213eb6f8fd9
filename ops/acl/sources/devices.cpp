// Devices, contexts, and how a program begins and ends.
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "acl/acl_rt.h"
#include "messages.h"
#include "python.h"
#include "runtime.h"

namespace npu_sim {
namespace {

constexpr int32_t DEVICES = 1;

struct Device {
    std::mutex mutex;
    int users = 0;  // aclrtSetDevice without aclrtResetDevice
    std::shared_ptr<Context> context;
    void *name = nullptr;
};

Device &device() {
    static Device *const own = new Device;
    return *own;
}

struct Current {
    std::shared_ptr<Context> context;
    void *name = nullptr;
};

Current &current() {
    static thread_local Current own;
    return own;
}

std::mutex life;
bool is_initialized = false, was_finalized = false;

bool is_on(const char *variable) {
    const char *value = getenv(variable);
    return value != nullptr && *value != '\0' && strcmp(value, "0") != 0;
}

int check_device(const char *call, int32_t id) {
    if (id >= 0 && id < DEVICES) return ACL_SUCCESS;
    return refuse(ACL_ERROR_RT_INVALID_DEVICEID, call, "deviceId must be 0, the one device there is, not " +
                                                           std::to_string(id));
}

void end_context(Context &context) {
    std::shared_ptr<Stream> own;
    {
        std::lock_guard<std::mutex> lock(context.mutex);
        context.is_alive = false;
        own = std::move(context.own_stream);
    }
    if (own != nullptr && !own->is_own_thread()) own->wait(Deadline::max());
}

int reset_device(const char *call, int32_t id, bool is_forced) {
    if (const int status = check_device(call, id)) return status;
    Device &own = device();
    std::lock_guard<std::mutex> lock(own.mutex);
    if (own.users > 0 && --own.users > 0 && !is_forced) return ACL_SUCCESS;
    own.users = 0;
    drain();
    for (const auto &object : live_objects(Kind::context)) end_context(static_cast<Context &>(*object));
    if (own.name != nullptr) remove_object(Kind::context, own.name);
    own.context = nullptr;
    own.name = nullptr;
    reset_memory(id);
    return ACL_SUCCESS;
}

// Report what a program has not given back.
void report_leaks() {
    static const struct {
        Kind kind;
        const char *made, *given_back;
    } kinds[] = {{Kind::context, "aclrtCreateContext", "aclrtDestroyContext"},
                 {Kind::stream, "aclrtCreateStream", "aclrtDestroyStream"},
                 {Kind::event, "aclrtCreateEvent", "aclrtDestroyEvent"},
                 {Kind::tensor, "aclCreateTensor", "aclDestroyTensor"},
                 {Kind::scalar, "aclCreateScalar", "aclDestroyScalar"},
                 {Kind::int_array, "aclCreateIntArray", "aclDestroyIntArray"},
                 {Kind::float_array, "aclCreateFloatArray", "aclDestroyFloatArray"},
                 {Kind::bool_array, "aclCreateBoolArray", "aclDestroyBoolArray"},
                 {Kind::tensor_list, "aclCreateTensorList", "aclDestroyTensorList"},
                 {Kind::scalar_list, "aclCreateScalarList", "aclDestroyScalarList"},
                 {Kind::executor, "GetWorkspaceSize", "aclDestroyAclOpExecutor or its run"}};
    std::string lines = leaked_memory();
    for (const auto &[kind, made, given_back] : kinds) {
        std::string numbers;
        for (const auto &object : live_objects(kind)) {
            if (kind == Kind::context && static_cast<Context &>(*object).is_default) continue;
            numbers += (numbers.empty() ? " " : ", ") + std::to_string(object->number);
        }
        if (numbers.empty()) continue;
        if (numbers.size() > 60) numbers = numbers.substr(0, numbers.rfind(',', 50)) + ", ...";
        lines += std::string(lines.empty() ? "" : "\n") + name_of(kind) + numbers + " of " + made + " without " + given_back;
    }
    size_t begin = 0;
    while (begin < lines.size()) {
        const size_t end = std::min(lines.find('\n', begin), lines.size());
        report("left at aclFinalize: " + lines.substr(begin, end - begin));
        begin = end + 1;
    }
}

// A program that ends in the middle of its work: the streams' threads must not run into what is taken down.
void drain_at_exit() { drain(); }

}  // namespace

std::shared_ptr<Context> current_context(const char *call) {
    const auto &own = current().context;
    if (own != nullptr && own->is_alive) return own;
    refuse(ACL_ERROR_RT_CONTEXT_NULL, call,
           std::string("the thread must have a context (aclrtSetDevice, aclrtSetCurrentContext), not ") +
               (own == nullptr ? "none" : "one that was destroyed or whose device was reset"));
    return nullptr;
}

bool is_deterministic() {
    const auto &own = current().context;
    if (own == nullptr || !own->is_alive) return false;
    std::lock_guard<std::mutex> lock(own->mutex);
    const auto found = own->options.find(ACL_OPT_DETERMINISTIC);
    return found != own->options.end() && found->second != 0;
}

bool wants_checks() {
    static const bool own = is_on("NPU_SIM_CHECK");
    return own;
}

}  // namespace npu_sim

using npu_sim::Kind;
using npu_sim::refuse;

extern "C" {

aclError aclInit(const char *) {
    std::lock_guard<std::mutex> lock(npu_sim::life);
    if (npu_sim::is_initialized)
        return refuse(ACL_ERROR_REPEAT_INITIALIZE, "aclInit", "it must be called once before aclFinalize, not again");
    npu_sim::is_initialized = true;
    npu_sim::watch_touches();
    return ACL_SUCCESS;
}

aclError aclFinalize(void) {
    std::lock_guard<std::mutex> lock(npu_sim::life);
    if (!npu_sim::is_initialized)
        return npu_sim::was_finalized
                   ? refuse(ACL_ERROR_REPEAT_FINALIZE, "aclFinalize", "it must be called once, not again")
                   : refuse(ACL_ERROR_UNINITIALIZE, "aclFinalize", "aclInit must be called before");
    npu_sim::is_initialized = false;
    npu_sim::was_finalized = true;
    npu_sim::drain();
    npu_sim::report_leaks();
    if (const auto *bridge = npu_sim::running_python()) {
        const npu_sim::Unwatched unwatched;
        bridge->finish();
    }
    return ACL_SUCCESS;
}

aclError aclrtGetVersion(int32_t *majorVersion, int32_t *minorVersion, int32_t *patchVersion) {
    if (majorVersion == nullptr || minorVersion == nullptr || patchVersion == nullptr)
        return refuse(ACL_ERROR_INVALID_PARAM, "aclrtGetVersion", "every part must be an address, not a null pointer");
    *majorVersion = 1, *minorVersion = 0, *patchVersion = 0;
    return ACL_SUCCESS;
}

const char *aclrtGetSocName(void) {
    const auto *bridge = npu_sim::python("aclrtGetSocName");
    return bridge == nullptr ? nullptr : bridge->product;
}

int64_t npu_sim_fact_of(npu_sim_fact fact) {
    const auto *bridge = npu_sim::python("platform_ascendc");
    return bridge == nullptr ? -1 : bridge->facts[fact];
}

aclError aclrtGetDeviceInfo(uint32_t deviceId, aclrtDevAttr attr, int64_t *value) {
    const char *call = "aclrtGetDeviceInfo";
    if (value == nullptr) return refuse(ACL_ERROR_INVALID_PARAM, call, "value must be an address, not a null pointer");
    if (const int status = npu_sim::check_device(call, static_cast<int32_t>(deviceId))) return status;
    const auto *bridge = npu_sim::python(call);
    if (bridge == nullptr) return ACL_ERROR_RT_INTERNAL_ERROR;
    const int64_t *facts = bridge->facts;
    int64_t found = -1;
    switch (attr) {
        case ACL_DEV_ATTR_AICORE_CORE_NUM:
        case ACL_DEV_ATTR_CUBE_CORE_NUM: found = facts[NPU_SIM_CUBE_CORES]; break;
        // cores of their own: where Cube and vector unit are one core, those without a Cube, if there are any
        case ACL_DEV_ATTR_VECTOR_CORE_NUM:
            found = facts[facts[NPU_SIM_IS_SPLIT] ? NPU_SIM_VECTOR_CORES : NPU_SIM_VECTOR_ONLY_CORES];
            break;
        case ACL_DEV_ATTR_UBUF_PER_VECTOR_CORE: found = facts[NPU_SIM_UB]; break;
        case ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE: found = facts[NPU_SIM_MEMORY] ? facts[NPU_SIM_MEMORY] : -1; break;
        case ACL_DEV_ATTR_L2_CACHE_SIZE: found = facts[NPU_SIM_L2]; break;
        default: break;
    }
    if (found < 0)
        return refuse(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, call,
                      "attr must be one that is known of " + std::string(bridge->product) + ", not " +
                          std::to_string(attr));
    *value = found;
    return ACL_SUCCESS;
}

aclError aclrtGetRunMode(aclrtRunMode *runMode) {
    if (runMode == nullptr)
        return refuse(ACL_ERROR_INVALID_PARAM, "aclrtGetRunMode", "runMode must be an address, not a null pointer");
    *runMode = ACL_HOST;
    return ACL_SUCCESS;
}

aclError aclrtGetHardwareSyncAddr(void **addr) {
    static const char none = 0;
    if (addr == nullptr)
        return refuse(ACL_ERROR_INVALID_PARAM, "aclrtGetHardwareSyncAddr", "addr must be an address, not a null pointer");
    *addr = const_cast<char *>(&none);
    return ACL_SUCCESS;
}

aclError aclrtGetDeviceCount(uint32_t *count) {
    if (count == nullptr)
        return refuse(ACL_ERROR_INVALID_PARAM, "aclrtGetDeviceCount", "count must be an address, not a null pointer");
    *count = npu_sim::DEVICES;
    return ACL_SUCCESS;
}

aclError aclrtSetDevice(int32_t deviceId) {
    if (const int status = npu_sim::check_device("aclrtSetDevice", deviceId)) return status;
    static const int registered = atexit(npu_sim::drain_at_exit);
    (void)registered;
    npu_sim::watch_touches();
    auto &own = npu_sim::device();
    std::lock_guard<std::mutex> lock(own.mutex);
    ++own.users;
    if (own.context == nullptr) {
        own.context = std::make_shared<npu_sim::Context>();
        own.context->device_id = deviceId;
        own.context->is_default = true;
        own.name = npu_sim::add_object(Kind::context, own.context);
    }
    npu_sim::current() = {own.context, own.name};
    return ACL_SUCCESS;
}

aclError aclrtGetDevice(int32_t *deviceId) {
    if (deviceId == nullptr)
        return refuse(ACL_ERROR_INVALID_PARAM, "aclrtGetDevice", "deviceId must be an address, not a null pointer");
    const auto context = npu_sim::current_context("aclrtGetDevice");
    if (context == nullptr) return ACL_ERROR_RT_CONTEXT_NULL;
    *deviceId = context->device_id;
    return ACL_SUCCESS;
}

aclError aclrtResetDevice(int32_t deviceId) { return npu_sim::reset_device("aclrtResetDevice", deviceId, false); }

aclError aclrtResetDeviceForce(int32_t deviceId) {
    return npu_sim::reset_device("aclrtResetDeviceForce", deviceId, true);
}

aclError aclrtSynchronizeDevice(void) {
    if (npu_sim::current_context("aclrtSynchronizeDevice") == nullptr) return ACL_ERROR_RT_CONTEXT_NULL;
    return npu_sim::finish_all("aclrtSynchronizeDevice");
}

aclError aclrtCreateContext(aclrtContext *context, int32_t deviceId) {
    if (context == nullptr)
        return refuse(ACL_ERROR_INVALID_PARAM, "aclrtCreateContext", "context must be an address, not a null pointer");
    if (const int status = npu_sim::check_device("aclrtCreateContext", deviceId)) return status;
    npu_sim::watch_touches();
    auto made = std::make_shared<npu_sim::Context>();
    made->device_id = deviceId;
    *context = npu_sim::add_object(Kind::context, made);
    npu_sim::current() = {made, *context};
    return ACL_SUCCESS;
}

aclError aclrtDestroyContext(aclrtContext context) {
    const auto found = npu_sim::find<npu_sim::Context>(context);
    if (found == nullptr || found->is_default)
        return refuse(context == nullptr ? ACL_ERROR_INVALID_PARAM : ACL_ERROR_RT_INVALID_HANDLE, "aclrtDestroyContext",
                      "context must be one of aclrtCreateContext that is alive, not " +
                          (found ? std::string("the device's own") : npu_sim::describe(Kind::context, context)));
    npu_sim::end_context(*found);
    npu_sim::remove_object(Kind::context, context);
    return ACL_SUCCESS;
}

aclError aclrtSetCurrentContext(aclrtContext context) {
    const auto found = npu_sim::find<npu_sim::Context>(context);
    if (found == nullptr || !found->is_alive)
        return refuse(context == nullptr ? ACL_ERROR_INVALID_PARAM : ACL_ERROR_RT_INVALID_HANDLE, "aclrtSetCurrentContext",
                      "context must be a live aclrtContext, not " +
                          (found ? std::string("one whose device was reset") : npu_sim::describe(Kind::context, context)));
    npu_sim::current() = {found, context};
    return ACL_SUCCESS;
}

aclError aclrtGetCurrentContext(aclrtContext *context) {
    if (context == nullptr)
        return refuse(ACL_ERROR_INVALID_PARAM, "aclrtGetCurrentContext", "context must be an address, not a null pointer");
    if (npu_sim::current_context("aclrtGetCurrentContext") == nullptr) return ACL_ERROR_RT_CONTEXT_NULL;
    *context = npu_sim::current().name;
    return ACL_SUCCESS;
}

aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
    const auto context = npu_sim::current_context("aclrtCtxSetSysParamOpt");
    if (context == nullptr) return ACL_ERROR_RT_CONTEXT_NULL;
    if (opt < ACL_OPT_DETERMINISTIC || opt > ACL_OPT_STRONG_CONSISTENCY)
        return refuse(ACL_ERROR_INVALID_PARAM, "aclrtCtxSetSysParamOpt",
                      "opt must be one of aclSysParamOpt, not " + std::to_string(opt));
    std::lock_guard<std::mutex> lock(context->mutex);
    context->options[opt] = value;
    return ACL_SUCCESS;
}

aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t *value) {
    if (value == nullptr)
        return refuse(ACL_ERROR_INVALID_PARAM, "aclrtCtxGetSysParamOpt", "value must be an address, not a null pointer");
    const auto context = npu_sim::current_context("aclrtCtxGetSysParamOpt");
    if (context == nullptr) return ACL_ERROR_RT_CONTEXT_NULL;
    std::lock_guard<std::mutex> lock(context->mutex);
    const auto found = context->options.find(opt);
    if (found == context->options.end())
        return refuse(ACL_ERROR_RT_SYSPARAMOPT_NOT_SET, "aclrtCtxGetSysParamOpt", "opt must be set before it is read");
    *value = found->second;
    return ACL_SUCCESS;
}
}
