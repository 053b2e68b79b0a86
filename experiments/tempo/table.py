#!/usr/bin/env python3
"""The tables of this folder's README, from the runs' own records.

    python3 experiments/tempo/table.py warmup runs/knights-warmup
    python3 experiments/tempo/table.py macro-steps runs/knights-compare
    python3 experiments/tempo/table.py attainable runs/tempo-alfworld-attainable/main/seed-0

`warmup`: what a grid's critics knew at the end of their warm-up: means over the last ten updates of each run, each measured on episodes that the
critic has not learned from; `same answers` is the share of states of which all answers had the same number. `macro-steps`: what arms did in their last phase,
means over its updates. A number is the mean over seeds, with the 95 % interval of Student's t that has the seeds as the
sample. `attainable`: what values by continuations know of independent outcomes, at states ten turns apart, from the trajectories of a run with the
estimator `vine`; needs the program `zstd`.
"""
import argparse
import glob
import json
import math
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from intervals import student

LAST = 10


def runs(folder):
    """Metrics of every reported cell of a grid, by arm."""
    if not os.path.exists(os.path.join(folder, "cells.json")):
        sys.exit(f"{folder} is not the folder of a grid: run `ascribe grid run FILE`, which says where it is")
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
    heads = ["arm", "skill", "correlation", "correlation, first ten updates", "mean error of answers", "same answers", "parse failures", "target",
             "critic tokens"]
    print("| " + " | ".join(heads) + " |")
    print("|---" * len(heads) + "|")
    for arm, of_seeds in runs(folder).items():
        whole = [[line for line in run if line["phase"] == "warmup"] for run in of_seeds]
        whole = [lines for lines in whole if len(lines) >= LAST]
        if not whole:
            continue
        first, last = [lines[:LAST] for lines in whole], [lines[-LAST:] for lines in whole]

        def column(name, of=last):
            return shown([mean(line.get(f"critic/judge/{name}") for line in lines) for lines in of])

        tokens = sum(lines[-1]["cost/critic_tokens"] for lines in last) / len(last)
        cells = [column("skill"), column("value_corr"), column("value_corr", first), column("abs_error_mean")]
        cells += [column("degenerate_state_rate"), column("parse_failure_rate"), column("target_mean")]
        print(f"| {arm} | " + " | ".join(cells) + f" | {tokens:,.0f} |")


def macro_steps(folder):
    names = [
        ("updates", None), ("new tasks among starts", "td/fresh_states"), ("start's age", "td/start_age/mean"),
        ("macro steps before it", "td/macro_index_mean"), ("prefix ratio", "td/prefix_ratio/mean"),
        ("groups of equal outcome", "actor/degenerate_group_rate"), ("groups without advantage", "credit/degenerate_group_rate"),
        ("spread of values at equal zero reward", "actor/value_gap_zero_reward"), ("critic's skill", "critic/judge/skill"),
        ("same answers", "critic/judge/degenerate_state_rate"),
    ]
    print("| arm | " + " | ".join(shown_name for shown_name, _ in names) + " |")
    print("|---|" + "---|" * len(names))
    for arm, of_seeds in runs(folder).items():
        # Arms of whole episodes: what there is of it, of the same phase.
        last = [[line for line in run if line["phase"] == run[-1]["phase"]] for run in of_seeds]
        cells = []
        for _, metric in names:
            if metric is None:
                cells.append(shown([float(len(lines)) for lines in last], 0))
            else:
                cells.append(shown([mean(line.get(metric) for line in lines) for lines in last]))
        print(f"| {arm} | " + " | ".join(cells) + " |")


def paths(trees):
    """Turns of every path from a group's start to its end."""
    parents = {turn["parent"] for turn in trees}
    for leaf in range(len(trees)):
        if leaf in parents:
            continue
        path = []
        while leaf is not None:
            path.append(trees[leaf])
            leaf = trees[leaf]["parent"]
        yield path[::-1]


def attainable(folder):
    files = sorted(glob.glob(os.path.join(glob.escape(folder), "trajectories", "*.jsonl.zst")))
    if not files:
        sys.exit(f"{folder} has no trajectories: run experiments/tempo/alfworld-attainable.toml")
    states = []
    for file in files:
        try:
            text = subprocess.run(["zstd", "-dc", file], capture_output=True, check=True).stdout.decode()
        except FileNotFoundError:
            sys.exit("the program `zstd` is not there: install it (Debian: `apt-get install zstd`)")
        for line in text.splitlines():
            for path in paths(json.loads(line)["turns"]):
                for t in range(0, len(path), 10):
                    outcome = sum(turn["env_reward"] for turn in path[t:])
                    # A turn's credit is r + V(s') - V(s): what is left of the outcome is the value.
                    states.append((t, outcome - sum(turn["advantage"] for turn in path[t:]), outcome))
    print("| turns before | states | won | values above one half | skill of the better guess | skill of the value | correlation |")
    print("|---|---|---|---|---|---|---|")
    for name, of in [("all", states)] + [(str(t), [s for s in states if s[0] == t]) for t in sorted({s[0] for s in states})]:
        outcomes, values = [s[2] for s in of], [s[1] for s in of]
        won = mean(outcomes)
        constant = min(won, 1 - won)
        error = lambda guesses: mean([abs(guess - outcome) for guess, outcome in zip(guesses, outcomes)])
        skill = lambda guesses: f"{1 - error(guesses) / constant:.3f}" if constant > 0 else ""
        spread = [statistics.pstdev(column) for column in (values, outcomes)]
        together = mean([v * o for v, o in zip(values, outcomes)]) - mean(values) * won
        correlation = f"{together / (spread[0] * spread[1]):.3f}" if min(spread) > 0 else ""
        above = mean([float(value > 0.5) for value in values])
        print(f"| {name} | {len(of)} | {won:.3f} | {above:.3f} | {skill([float(v > 0.5) for v in values])} | {skill(values)} | {correlation} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["warmup", "macro-steps", "attainable"])
    parser.add_argument("folder", help="folder of the grid; of the run, for `attainable`")
    arguments = parser.parse_args()
    {"warmup": warmup, "macro-steps": macro_steps, "attainable": attainable}[arguments.what](arguments.folder)


if __name__ == "__main__":
    main()
