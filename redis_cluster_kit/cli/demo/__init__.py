"""`rck demo`: a cluster of real processes on its own servers, and what happens when some of them go.

`pods` starts, kills and stops the processes; `watching` sees what they own; `story` says what happens when;
`promises` judges what was seen; `view` shows it; `stage` puts them together. Another act (entities under
load, say) is a step of the story, entities in `pods.ENTITIES`, and a promise more.
"""
