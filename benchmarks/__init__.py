"""One question a file, `python -m benchmarks.<name>`; each writes what it measured to `benchmarks/results/`."""
