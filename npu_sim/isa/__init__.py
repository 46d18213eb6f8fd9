"""Instructions: one row format, and per instruction one emitter, footprint, semantics, cost rule and disassembly."""
