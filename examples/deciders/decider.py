"""First come, first served, in a program of its own; README.md has the protocol.

forerun simulate scenario.yaml --decider -- python3 examples/deciders/decider.py
"""

import json
import sys


def decided(view):
    """GPUs for the jobs that start now: in order of submission, until one does not fit."""
    free, jobs, start = view["free"], view["jobs"], {}
    for name, gpus, has in zip(jobs["id"], jobs["gpus"], jobs["has"]):
        if has:
            continue
        if gpus > free:
            break
        start[name] = gpus
        free -= gpus
    return {"view": view["view"], "gpus": start}


hello = json.loads(sys.stdin.readline())
print(json.dumps({"protocol": hello["protocol"]}), flush=True)
for line in sys.stdin:
    print(json.dumps(decided(json.loads(line))), flush=True)
