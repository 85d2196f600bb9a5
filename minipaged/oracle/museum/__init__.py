"""Wrong subjects with one known fault each: the measure of what the oracle sees."""
