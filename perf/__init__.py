"""Speed of the emulator itself: benchmarks, and the peers they are compared with; run from a checkout."""
