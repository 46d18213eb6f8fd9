"""The gradient of 2D average pooling as the operator library computes it (aclnnAvgPool2dBackward)."""
