"""`rck doctor`: looks at what a cluster stands on and gives a verdict on each point.

`command` runs the checks and shows them; each other module judges one part. Facts are read elsewhere.
"""
