"""One question a file: `python -m benchmarks.<name>` measures, prints and writes to `benchmarks/results/`.

A benchmark is a module with `main() -> int`: 0 if its promise is kept, 1 if it is broken. The last line it
prints says what it found. `python -m benchmarks` runs them all, in the order of their names.
"""
