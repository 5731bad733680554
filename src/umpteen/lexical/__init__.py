"""Labels whose terms stand in a text."""
