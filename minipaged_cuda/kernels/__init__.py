"""The kernels, one text each: plain functions of raw pointers and scalars."""
