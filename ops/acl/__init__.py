"""Host programs in C++: headers and libraries with the names of AscendCL and aclnn, over `ops.aclnn`.

``include`` holds the headers, ``sources`` the libraries, which `ops.acl.build` compiles for this machine; a program
that is linked with them starts Python by itself, and `ops.acl.bridge` answers it.
"""
