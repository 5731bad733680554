"""Measures the quality of predictions."""
