"""A table in, the same table with labels out."""
