"""Weight gradient of a convolution: host tilings, kernels."""
