"""How good a model is, in detail: for all rows, for each label, with examples."""
