"""Trained models: opened, asked, judged, explained, saved, and nested in one another."""
