"""One optimizer step, wired: from operations to the memory of one rank. No arithmetic here; formulas compute."""
