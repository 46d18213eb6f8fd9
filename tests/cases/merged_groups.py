"""How groups of a convolution merge, from the library's own functions."""

# (groups, Cin, Cout) -> (real_g, mag, cin1_g, cout_g), C0 = 16: the group dictionary of tbe conv3d_backprop_filter, and
# calculate_group of the TBE convolution helpers.
GROUP_EXAMPLES = [
    ((1, 16, 16), (1, 1, 1, 16)),
    ((1, 20, 33), (1, 1, 2, 48)),
    ((4, 20, 56), (1, 4, 2, 64)),
    ((2, 64, 64), (2, 1, 2, 32)),
    ((6, 48, 24), (2, 4, 2, 16)),
    ((32, 96, 224), (2, 16, 3, 112)),
    ((16, 16, 16), (1, 16, 1, 16)),
    ((3, 48, 48), (3, 1, 1, 16)),
    ((17, 17, 34), (2, 16, 1, 32)),
]
