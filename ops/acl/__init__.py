"""Host programs in C++: headers and libraries with the names of AscendCL and aclnn, over `ops.aclnn`.

The runtime's headers stand in ``npu_sim/ascendc/host``, those of the operators in ``include``; ``sources`` are the
libraries, which `ops.acl.build` compiles for this machine. A program that is linked with them starts Python by itself,
and `ops.acl.bridge` answers it.
"""
