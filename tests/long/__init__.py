"""Long runs, each a command in a checkout: ``python -m tests.long.NAME``; the suite runs a share of each.

Options and meaning stand in each module, the last record of each in ``results/``. Times are those of the defaults on
one core, without compilation.

==================== ==========================================================================================
weight_gradient      8 min: weight gradients, any legal tiling, bit for bit against the definition
input_gradient       8 min: input gradients and forward convolutions, the same way
convolution_backward 8 min: public backward calls of every rank, product, mode and mask
avg_pool             2 min: public calls of the pooling gradient
avg_pool_torch       1 min: the definition of the pooling gradient against PyTorch's
exhaustive_rounding  12 min: all 2^32 float32 words in every conversion and mode
host_digest          7 min: one digest of public calls on seven host CPUs, one after the other
wild_calls           28 min, ``--jobs``: arguments nobody expects, at every public front
damaged_files        3 min: damaged files of captured layers
damaged_inputs       2 min: captures, case files, results and self-tests whose values are wrong
wild_rows            6 min: any 128 bytes as an instruction, between guard pages
wild_programs        37 min: programs that nobody verified, through everything that reads rows, bounds checked
wild_tilings         22 min: kernels in C++ whose tiling structs are wrong
fault_harness        2 min: what the checkers say of kernels with a fault in a flag, barrier, copy or buffer
race_bites           2 min: whether the order constructed for a race changes the result
value_faults         2 min: where `diverge` ends for values that are wrong in the right order
source_faults        some seconds: bugs in C++ kernels, found at their lines
foreign_calls        8 min: recorded calls of other programs on all series
forward_calls        4 min: forward convolutions and poolings, exact on integers, bounded on reals
transcendental       1 min: exp and ln of all float32 whose result could be rounded the wrong way
advice_signs         some seconds: the changes that `perf` advises, made and timed anew
tuned_tilings        1 min: the tilings that `perf --tune` finds beside the fastest of all
moved_times          some seconds: low and high times of launches beside those of all their cores
==================== ==========================================================================================
"""
