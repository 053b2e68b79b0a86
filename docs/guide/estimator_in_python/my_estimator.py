"""A path's outcome against the mean of its group's (GRPO without the division)."""
import json
import sys


def credit(group):
    tried = [path for path in group["paths"] if path["end"] != "untried"]
    mean = sum(path["outcome"] for path in tried) / max(len(tried), 1)
    of_turn = [[] for _ in group["turns"]]
    for path in tried:
        for turn in path["turns"]:
            of_turn[turn].append(path["outcome"] - mean)
    # A turn that paths share gets their mean; a turn on no such path is not trained.
    return [sum(a) / len(a) if a else None for a in of_turn]


for line in sys.stdin:
    group = json.loads(line)
    print(json.dumps({"index": group["index"], "turns": credit(group)}), flush=True)
