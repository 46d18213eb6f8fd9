"""Programs: launches, builders, violations, disassembly."""
