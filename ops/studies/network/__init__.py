"""What a training step of a network takes: its layers, the calls of each, their times, and what becomes of them."""
