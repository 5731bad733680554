"""Data sets: reading, writing, splitting, making, preparing."""
