"""Families of models: what each stores and how it scores."""
