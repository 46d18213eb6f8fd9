"""The example of the published page of ``conv3d_backprop_filter``, in full size: only its imports are replaced.

After the page's program it is run on random tensors, compared with a direct sum for one element, checked for races and
timed.
"""

import numpy as np

from npu_sim.engines.hazards import run_hazards
from npu_sim.engines.timeline import run_timeline
from ops.tbe import dsl, gradient_from_result, tvm

shape_dedy = (16, 4, 1, 36, 36, 16)
out_backprop_dtype = "float16"
filter_sizes = [16, 2, 16, 3, 3]
shape_fmap = (16, 8, 1, 72, 72, 16)
x_dtype = "float16"

dedy = tvm.placeholder(shape_dedy, name="dedy", dtype=out_backprop_dtype)
fmap = tvm.placeholder(shape_fmap, name="fmap", dtype=x_dtype)

strides = [2, 2, 2]
pads = [0, 0, 0, 1, 0, 1]
dilations = [1, 1, 1, 1, 1]
res_dtype = "float32"
kernel_name = "conv3d_backprop_filter_dx_16_8_72_72_16_dy_16_4_36_36_16_dw_2_3_3_16_16_s_1_2_2_2_1_p_SAME"
group_dict = {"real_g": 1, "mag_factor": 1, "cin1_g": 1, "cout_g": 16, "cin_ori": 16, "cout_ori": 16}

para_dict = {
    "strides": strides,
    "pads": pads,
    "dilations": dilations,
    "res_dtype": res_dtype,
    "kernel_name": kernel_name,
    "group_dict": group_dict,
}

dedw = dsl.conv3d_backprop_filter(x=fmap, out_backprop=dedy, filter_size=filter_sizes, para_dict=para_dict)

if __name__ == "__main__":
    print(dedw.plan)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape_fmap).astype(np.float16)
    dy = rng.standard_normal(shape_dedy).astype(np.float16)
    result = dedw.run({"fmap": x, "dedy": dy})
    gradient = gradient_from_result(result, group_dict, groups=1, kernel=(2, 3, 3))

    # output channel 3, input channel 5, tap (1, 2, 0): row 72, just below the feature map, is padding
    rows = x[:, 1::2, 0, 2::2, 0::2, 5].astype(np.float64)
    direct = (dy[:, :, 0, :35, :, 3].astype(np.float64) * rows).sum()
    print(f"dW[3, 5, 1, 2, 0] = {gradient[3, 5, 1, 2, 0]:.4f}, summed directly {direct:.4f}")

    print(f"hazards: {len(run_hazards(dedw.launches, dedw.product))}")
    for launch in dedw.launches:
        timed = run_timeline(launch, dedw.product)
        print(f"{launch.name}: {timed.total_cycles} cycles, {timed.seconds() * 1e6:.1f} us on {timed.product}")
