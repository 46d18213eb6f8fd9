"""Enumerations of the C interface, with its names and numbers.

Sources: AscendCL header ``acl/acl_base.h`` (aclDataType, aclFormat) as the enumeration pages of the CANN 8 application
development reference list it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

import ml_dtypes
import numpy as np

from npu_sim.dtypes.formats import DTYPE_OF_STORAGE


class aclDataType(IntEnum):
    """Element types; this operator takes ACL_FLOAT, ACL_FLOAT16 and ACL_BF16."""

    ACL_DT_UNDEFINED = -1
    ACL_FLOAT = 0
    ACL_FLOAT16 = 1
    ACL_INT8 = 2
    ACL_INT32 = 3
    ACL_UINT8 = 4
    ACL_INT16 = 6
    ACL_UINT16 = 7
    ACL_UINT32 = 8
    ACL_INT64 = 9
    ACL_UINT64 = 10
    ACL_DOUBLE = 11
    ACL_BOOL = 12
    ACL_STRING = 13
    ACL_COMPLEX64 = 16
    ACL_COMPLEX128 = 17
    ACL_BF16 = 27
    ACL_INT4 = 29
    ACL_UINT1 = 30
    ACL_COMPLEX32 = 33
    ACL_HIFLOAT8 = 34
    ACL_FLOAT8_E5M2 = 35
    ACL_FLOAT8_E4M3FN = 36
    ACL_FLOAT8_E8M0 = 37
    ACL_FLOAT6_E3M2 = 38
    ACL_FLOAT6_E2M3 = 39
    ACL_FLOAT4_E2M1 = 40
    ACL_FLOAT4_E1M2 = 41


class aclFormat(IntEnum):
    """Storage formats. Each has its name in the C interface and, as an alias, the same without ``ACL_FORMAT_``."""

    ACL_FORMAT_UNDEFINED = -1
    ACL_FORMAT_NCHW = 0
    ACL_FORMAT_NHWC = 1
    ACL_FORMAT_ND = 2
    ACL_FORMAT_NC1HWC0 = 3
    ACL_FORMAT_FRACTAL_Z = 4
    ACL_FORMAT_NC1HWC0_C04 = 12
    ACL_FORMAT_HWCN = 16
    ACL_FORMAT_NDHWC = 27
    ACL_FORMAT_FRACTAL_NZ = 29
    ACL_FORMAT_NCDHW = 30
    ACL_FORMAT_NDC1HWC0 = 32
    ACL_FRACTAL_Z_3D = 33
    ACL_FORMAT_NC = 35
    ACL_FORMAT_NCL = 47

    UNDEFINED = -1
    NCHW = 0
    NHWC = 1
    ND = 2
    NC1HWC0 = 3
    FRACTAL_Z = 4
    NC1HWC0_C04 = 12
    HWCN = 16
    NDHWC = 27
    FRACTAL_NZ = 29
    NCDHW = 30
    NDC1HWC0 = 32
    FRACTAL_Z_3D = 33
    NC = 35
    NCL = 47


STORAGE: Mapping[aclDataType, np.dtype] = MappingProxyType(
    {
        aclDataType.ACL_FLOAT: np.dtype(np.float32),
        aclDataType.ACL_FLOAT16: np.dtype(np.float16),
        aclDataType.ACL_BF16: np.dtype(ml_dtypes.bfloat16),
        aclDataType.ACL_INT8: np.dtype(np.int8),
        aclDataType.ACL_INT16: np.dtype(np.int16),
        aclDataType.ACL_INT32: np.dtype(np.int32),
        aclDataType.ACL_INT64: np.dtype(np.int64),
        aclDataType.ACL_UINT8: np.dtype(np.uint8),
        aclDataType.ACL_UINT16: np.dtype(np.uint16),
        aclDataType.ACL_UINT32: np.dtype(np.uint32),
        aclDataType.ACL_UINT64: np.dtype(np.uint64),
        aclDataType.ACL_DOUBLE: np.dtype(np.float64),
        aclDataType.ACL_BOOL: np.dtype(np.bool_),
        aclDataType.ACL_COMPLEX64: np.dtype(np.complex64),
        aclDataType.ACL_COMPLEX128: np.dtype(np.complex128),
    }
)
"""NumPy type of the storages; types that are missing here have no NumPy counterpart and take uint8 buffers."""


def dtype_name(data_type: aclDataType) -> str:
    """Return the name descriptors use: "fp32", "fp16", "bf16", else "double", "int8", ..."""
    storage = STORAGE.get(data_type)
    if storage is not None and storage in DTYPE_OF_STORAGE:
        return DTYPE_OF_STORAGE[storage].name
    return data_type.name.removeprefix("ACL_").lower()


def format_name(storage_format: aclFormat) -> str:
    """Return the name descriptors use: "NCHW", "FRACTAL_Z_3D", ..."""
    return storage_format.name.removeprefix("ACL_").removeprefix("FORMAT_")
