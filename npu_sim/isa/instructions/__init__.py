"""One module per instruction; each makes one `npu_sim.isa.instruction.Instruction`, named ``INSTRUCTION``.

`npu_sim.isa.op` finds them: what is put here is known everywhere.
"""
