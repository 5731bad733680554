"""The repository's own figures: `python -m benchmarks` compares methods and peers; the other files are studies."""
