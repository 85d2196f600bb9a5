"""Faults planted into the block manager, and who notices them."""
