"""Methods and peers side by side on the same data: run, measured, judged, drawn."""
