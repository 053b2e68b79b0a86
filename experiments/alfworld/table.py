#!/usr/bin/env python3
"""The tables of this folder's README, from the runs' own records.

    python3 experiments/alfworld/table.py [--runs FOLDER] [--seeds 0 1 2]

Reads the last evaluation in `evaluations.jsonl` of `alfworld-clone`, `alfworld-grpo` and `alfworld-random`: one greedy
episode per game. A difference is taken game by game and averaged; there is one per seed. Two intervals of 95 % stand
beside it. The first treats the seeds as the sample (Student's t, two degrees of freedom for three seeds). The second is
the field's stratified bootstrap (Agarwal et al. 2021, arXiv 2108.13264): for every game the runs are drawn anew with
replacement, 2,000 times; it takes the games as given.
"""
import argparse
import json
import os
import random
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from intervals import T_975, student

REPETITIONS = 2000


def successes(folder):
    """{split: {game: (task type, success)}} of the last greedy evaluation."""
    path = os.path.join(folder, "evaluations.jsonl")
    if not os.path.exists(path):
        sys.exit(f"{path} is not there: run the experiment first")
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    last = max(line["update"] for line in lines)
    splits = {}
    for line in lines:
        if line["update"] == last and line["mode"] == "greedy":
            game = (line["category"], line["episodes"][0]["success"])
            splits.setdefault(line["split"], {})[line["name"]] = game
    return splits


def rate(games, kind):
    chosen = [won for category, won in games.values() if kind in (category, "all")]
    return sum(chosen) / len(chosen)


def differences(ours, theirs, kind):
    """Per game, in one order: ours minus theirs."""
    if ours.keys() != theirs.keys():
        sys.exit("two runs were measured on different games")
    names = [name for name in sorted(ours) if kind in (ours[name][0], "all")]
    return [ours[name][1] - theirs[name][1] for name in names]


def by_seeds(runs):
    return student([statistics.fmean(run) for run in runs])


def by_bootstrap(runs):
    rng = random.Random(0)
    games = list(zip(*runs))
    n = len(runs)
    means = sorted(sum(sum(rng.choices(game, k=n)) for game in games) / (n * len(games)) for _ in range(REPETITIONS))
    return means[int(0.025 * REPETITIONS)], means[int(0.975 * REPETITIONS) - 1]


def difference(runs):
    mean, low, high = by_seeds(runs)
    lower, upper = by_bootstrap(runs)
    return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}] [{lower:+.3f}, {upper:+.3f}]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    if not 2 <= len(args.seeds) <= 1 + max(T_975):
        parser.error(f"an interval over seeds needs 2 to {1 + max(T_975)} of them")
    arm = lambda name: [successes(os.path.join(args.runs, f"alfworld-{name}", "main", f"seed-{s}")) for s in args.seeds]
    clone = successes(os.path.join(args.runs, "alfworld-clone", "main", "seed-0"))
    grpo, noise = arm("grpo"), arm("random")
    each = lambda runs, split, kind: " / ".join(f"{rate(run[split], kind):.3f}" for run in runs)
    for split, games in clone.items():
        kinds = ["all", *sorted({category for category, _ in games.values()})]
        print(f"**{split}**, {len(games)} games, greedy success; per seed {', '.join(map(str, args.seeds))}:\n")
        print("| task type | games | clone | GRPO | random | GRPO − clone | GRPO − random |")
        print("|---|---|---|---|---|---|---|")
        for kind in kinds:
            n = sum(kind in (category, "all") for category, _ in games.values())
            to_clone = [differences(run[split], games, kind) for run in grpo]
            to_noise = [differences(run[split], other[split], kind) for run, other in zip(grpo, noise)]
            cells = [kind, str(n), f"{rate(games, kind):.3f}", each(grpo, split, kind), each(noise, split, kind)]
            print("| " + " | ".join([*cells, difference(to_clone), difference(to_noise)]) + " |")
        print()


if __name__ == "__main__":
    main()
