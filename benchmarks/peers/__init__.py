"""Other libraries that send work through Redis, each measured in an environment of its own.

`catalogue` says which and what they do for a message, `environments` installs them, `running` measures one
from outside; everything else runs inside a peer's environment: it imports that and the standard library only.
"""
