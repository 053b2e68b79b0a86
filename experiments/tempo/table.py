#!/usr/bin/env python3
"""The tables of this folder's README, from the runs' own records.

    python3 experiments/tempo/table.py warmup runs/knights-warmup
    python3 experiments/tempo/table.py macro-steps runs/knights-compare

`warmup`: what a grid's critics knew at the end of their warm-up: means over the last ten updates of each run, each measured on episodes that the
critic has not learned from. `macro-steps`: what the arms with macro steps did in their last phase, means over its updates. A number is the mean
over seeds, with the 95 % interval of Student's t that has the seeds as the sample.
"""
import argparse
import glob
import json
import math
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from intervals import student

LAST = 10


def runs(folder):
    """Metrics of every reported cell of a grid, by arm."""
    with open(os.path.join(folder, "cells.json"), encoding="utf-8") as file:
        cells = json.load(file)
    arms = {}
    for cell in cells:
        found = glob.glob(os.path.join(glob.escape(folder), "cells", f"*-{cell['id'][:8]}", f"seed-{cell['seed']}", "metrics.jsonl"))
        if not found or not os.path.exists(os.path.join(os.path.dirname(found[0]), "result.json")):
            print(f"{cell['arm']}, seed {cell['seed']}: not finished", file=sys.stderr)
            continue
        with open(found[0], encoding="utf-8") as file:
            arms.setdefault(cell["arm"], []).append([json.loads(line) for line in file])
    return arms


def mean(numbers):
    numbers = [x for x in numbers if x is not None and math.isfinite(x)]
    return sum(numbers) / len(numbers) if numbers else None


def shown(numbers, digits=3):
    numbers = [x for x in numbers if x is not None]
    if not numbers:
        return ""
    if len(numbers) < 2:
        return f"{numbers[0]:.{digits}f}"
    middle, low, high = student(numbers)
    return f"{middle:.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def warmup(folder):
    print("| arm | skill | correlation | mean error of answers | parse failures | target | critic tokens |")
    print("|---|---|---|---|---|---|---|")
    for arm, of_seeds in runs(folder).items():
        last = [[line for line in run if line["phase"] == "warmup"][-LAST:] for run in of_seeds]
        last = [lines for lines in last if len(lines) == LAST]
        if not last:
            continue

        def column(name, digits=3):
            return shown([mean(line.get(f"critic/judge/{name}") for line in lines) for lines in last], digits)

        tokens = sum(lines[-1]["cost/critic_tokens"] for lines in last) / len(last)
        cells = [column("skill"), column("value_corr"), column("abs_error_mean"), column("parse_failure_rate"), column("target_mean")]
        print(f"| {arm} | " + " | ".join(cells) + f" | {tokens:,.0f} |")


def macro_steps(folder):
    names = [
        ("updates", None), ("new tasks among starts", "td/fresh_states"), ("start's age", "td/start_age/mean"),
        ("macro steps before it", "td/macro_index_mean"), ("prefix ratio", "td/prefix_ratio/mean"),
        ("groups of equal outcome", "actor/degenerate_group_rate"), ("groups without advantage", "credit/degenerate_group_rate"),
        ("spread of values at equal zero reward", "actor/value_gap_zero_reward"), ("critic's skill", "critic/judge/skill"),
    ]
    print("| arm | " + " | ".join(shown_name for shown_name, _ in names) + " |")
    print("|---|" + "---|" * len(names))
    for arm, of_seeds in runs(folder).items():
        last = [[line for line in run if "td/store_size" in line] for run in of_seeds]
        last = [lines for lines in last if lines]
        if not last:
            continue
        cells = []
        for _, metric in names:
            if metric is None:
                cells.append(shown([float(len(lines)) for lines in last], 0))
            else:
                cells.append(shown([mean(line.get(metric) for line in lines) for lines in last]))
        print(f"| {arm} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["warmup", "macro-steps"])
    parser.add_argument("folder", help="folder of the grid")
    arguments = parser.parse_args()
    (warmup if arguments.what == "warmup" else macro_steps)(arguments.folder)


if __name__ == "__main__":
    main()
