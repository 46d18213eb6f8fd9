"""Average pooling, forward."""
