/* The aclnn interface: its objects, and how it begins and ends. */
#ifndef NPU_SIM_ACLNN_ACLNN_BASE_H
#define NPU_SIM_ACLNN_ACLNN_BASE_H

#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnInit(const char *configPath);
ACL_FUNC_VISIBILITY aclnnStatus aclnnFinalize(void);

#ifdef __cplusplus
}
#endif

#endif
