"""Golden models: NumPy, integers, bit for bit what the hardware computes."""
