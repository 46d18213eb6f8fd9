/* Types and statuses of AscendCL, by the name that newer toolkits have for the part that the runtime brings. */
#ifndef NPU_SIM_ACL_ACL_BASE_RT_H
#define NPU_SIM_ACL_ACL_BASE_RT_H

#include "acl/acl_base.h"

#endif
