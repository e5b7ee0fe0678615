"""One question a file: `python -m benchmarks.<name>` measures, prints and writes to `benchmarks/results/`."""
