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
==================== ==========================================================================================
"""
