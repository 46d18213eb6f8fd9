"""Weight gradient of a convolution: oracle, host tilings, kernels."""
