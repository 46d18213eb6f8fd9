"""Performance: speed of the emulator itself, and estimates for whole networks."""
