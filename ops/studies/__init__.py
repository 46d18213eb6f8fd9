"""Studies: questions asked of the emulator on real tensors. Each module is imported when it is used."""
