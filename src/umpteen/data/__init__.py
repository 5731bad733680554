"""Data sets: read, write, split, generate and preprocess them."""
