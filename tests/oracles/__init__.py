"""Naive twins: slow, obvious implementations that the fast code is compared with. They import nothing of `npu_sim`."""
