"""Vector-side kernels shared by the operators."""
