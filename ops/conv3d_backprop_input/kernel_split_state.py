"""Words of the emitter's state and names of its sites, shared by the modules of the dav-c220 kernels."""

from __future__ import annotations

# sites
CLEAR, PROLOGUE, LOAD_A1, LOAD_B1, LOAD_L0A, LOAD_L0B, MMAD, STORE, EPILOGUE = range(9)
SITES = {
    CLEAR: "CLEAR", PROLOGUE: "PROLOGUE", LOAD_A1: "LOAD_A1", LOAD_B1: "LOAD_B1", LOAD_L0A: "LOAD_L0A",
    LOAD_L0B: "LOAD_L0B", MMAD: "MMAD", STORE: "STORE", EPILOGUE: "EPILOGUE",
}  # fmt: skip

# words behind core (0) and phase (1)
STAGE, ITEM, ITEM_END = 2, 3, 4
GROUP, BATCH, D, D_END = 5, 6, 7, 8
M_START, M_LEN, N_START, N_LEN, K_LEN = 9, 10, 11, 12, 13
M_ITER, N_ITER, K_ITER = 14, 15, 16
M1, N1, TAP, K, IS_FIRST = 17, 18, 19, 20, 21
IMAGE_TOP, IMAGE_ROWS, IMAGE_SKIP, A_ROW, A_ROWS = 22, 23, 24, 25, 26
A_BLOCKS, B_ROWS = 27, 28
L0_HALF, C_HALF, B_HELD, CLEARED = 29, 30, 31, 32

# stages
START, NEXT_ITEM, BLOCK_START, WALK, ITEM_DONE, FINISH, DONE = range(7)
