"""Orders: reserve, charge, wait for somebody's approval for days, ship; killed anywhere, it goes on.

`python -m examples.orders` shows it on a server of its own. `orders.py` is what to copy.
"""
