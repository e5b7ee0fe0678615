"""A bank: accounts as entities, an auditor as a singleton. `bank.py` is all of it."""
