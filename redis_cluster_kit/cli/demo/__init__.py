"""`rck demo`: a bank on a cluster of real processes and their own servers, and what happens when some go.

`bank` is what every pod serves, `hosting` what runs in a pod. `pods` starts, kills and stops them,
`customers` keep them busy; `watching`, `oversight` and `figures` see what they own and do; `story` says what
happens when; `books` and `promises` judge what was seen; `view` shows it; `stage` puts them together.
Another act is a step of the story, what it needs of the pods stands in `bank.registry`, and what it shows is
a promise more.
"""
