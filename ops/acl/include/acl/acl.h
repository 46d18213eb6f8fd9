/* What a program for AscendCL includes. Models, operators by name and profiling of AscendCL are not part of it. */
#ifndef NPU_SIM_ACL_ACL_H
#define NPU_SIM_ACL_ACL_H

#include "acl/acl_base.h"
#include "acl/acl_rt.h"

#endif
