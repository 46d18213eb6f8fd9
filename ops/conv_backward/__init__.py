"""The gradients of a convolution as one call: checks, plan, launches."""
