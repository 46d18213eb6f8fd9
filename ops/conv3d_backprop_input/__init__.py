"""Input gradient of a convolution, and the forward convolution that a transposed one's input gradient is."""
