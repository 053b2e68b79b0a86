#!/usr/bin/env python3
"""The tables of this folder's README, from the runs' own records.

    python3 experiments/value-head/table.py [--runs FOLDER] [--seeds 0 1 2 3 4]

Reads `metrics.jsonl` of `value-head-attainable`, `value-head-from-policy` and `value-head-from-scratch`. An update takes four
steps and is measured before it learns, so its values are those after four times as many steps as there were updates before it.
A number is the mean over seeds, with the 95 % interval of Student's t that has the seeds as the sample.
"""
import argparse
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from intervals import student

STEPS = (0, 20, 40, 60, 80, 120, 160, 200, 300, 400, 500, 600)
STEPS_OF_AN_UPDATE = 4
SAMPLES = 32


def metrics(runs, name, seed):
    path = os.path.join(runs, f"value-head-{name}", "main", f"seed-{seed}", "metrics.jsonl")
    if not os.path.exists(path):
        sys.exit(f"{path} is not there: run the experiment first")
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def shown(values):
    mean, low, high = student(values)
    return f"{mean:.3f} [{low:+.3f}, {high:+.3f}]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="runs", help="folder of the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    arguments = parser.parse_args()

    probed = [metrics(arguments.runs, "attainable", seed)[0]["critic/probes/explained_variance"] for seed in arguments.seeds]
    exact = [1 - (1 - x) * SAMPLES / (SAMPLES + 1) for x in probed]
    print(f"attainable: {shown(exact)}; per seed {' / '.join(f'{x:.3f}' for x in exact)}")
    print(f"as measured with {SAMPLES} continuations: {shown(probed)}\n")

    curves = {}
    for name in ("from-policy", "from-scratch"):
        for what, metric in (("training", "explained_variance"), ("fresh", "explained_variance_held_out")):
            runs = [metrics(arguments.runs, name, seed) for seed in arguments.seeds]
            curves[name, what] = [[line[f"critic/value/{metric}"] for line in run] for run in runs]
    columns = list(curves)
    print("| steps | " + " | ".join(f"{name}, {what}" for name, what in columns) + " |")
    print("|---|" + "---|" * len(columns))
    for step in STEPS:
        update = step // STEPS_OF_AN_UPDATE
        cells = (shown([curve[update] for curve in curves[column]]) for column in columns)
        print(f"| {step} | " + " | ".join(cells) + " |")
    print()
    for name in ("from-policy", "from-scratch"):
        fresh = curves[name, "fresh"]
        best = max(range(len(fresh[0])), key=lambda update: sum(curve[update] for curve in fresh))
        at_best = [curve[best] for curve in fresh]
        per_seed = " / ".join(f"{x:.3f}" for x in at_best)
        print(f"{name}: best fresh value of the mean after {best * STEPS_OF_AN_UPDATE} steps, {shown(at_best)}; per seed {per_seed}")
    differences = [
        max(a) - max(b) for a, b in zip(curves["from-policy", "fresh"], curves["from-scratch", "fresh"])
    ]
    print(f"each seed's own best fresh value, from-policy less from-scratch: {shown(differences)}")


if __name__ == "__main__":
    main()
