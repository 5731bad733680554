"""Trained models: open, predict, evaluate, explain, save, and nest one in another."""
