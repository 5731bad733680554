"""The model directory: written, checked, mapped. Knows parts and arrays, not what they mean."""
