"""Forward convolution, transposed or not."""
