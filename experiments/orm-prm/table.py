#!/usr/bin/env python3
"""The tables of this folder's README, from the runs' own records.

    python3 experiments/orm-prm/table.py [--runs FOLDER] [--seeds 0 1 2 3 4]

Reads `evaluations.jsonl` of `orm-prm-*` and, for the process reward by the other rule, of their `-probe` runs, which train
nothing. A number is the mean over seeds of the mean over the held-out episodes; the interval behind it is Student's t of 95 %
with the seeds as the sample. A difference is taken seed by seed: the arms of a seed begin with one clone.
"""
import argparse
import json
import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from intervals import T_975, student

SPAN = 20
ARMS = {
    "orm": "ORM, failure 0",
    "orm-penalty": "ORM, failure −1",
    "prm-carried": "PRM, carried",
    "prm-useful": "PRM, useful",
    "random": "random",
}


def evaluations(runs, name, seed):
    """{update: {mode: {column: mean over episodes}}} of a run."""
    path = os.path.join(runs, f"orm-prm-{name}", "main", f"seed-{seed}", "evaluations.jsonl")
    if not os.path.exists(path):
        sys.exit(f"{path} is not there: run the experiment first")
    episodes = {}
    with open(path, encoding="utf-8") as file:
        for line in map(json.loads, file):
            episodes.setdefault(line["update"], {}).setdefault(line["mode"], []).extend(line["episodes"])
    return {update: {mode: summary(of) for mode, of in modes.items()} for update, modes in episodes.items()}


def training(runs, name, seed):
    """Success of each update's own episodes, on the tasks that are trained on."""
    with open(os.path.join(runs, f"orm-prm-{name}", "main", f"seed-{seed}", "metrics.jsonl"), encoding="utf-8") as file:
        return [json.loads(line)["rollout/success_rate"] for line in file]


def summary(episodes):
    mean = lambda of: statistics.fmean(map(of, episodes))
    answered = [e for e in episodes if e["end"] == "terminated"]
    columns = {
        "success": mean(lambda e: e["success"]),
        "turns": mean(lambda e: e["turns"]),
        "truncated": mean(lambda e: e["end"] == "truncated"),
        # Of the reports that were made; the environment asks for one after every answer.
        "report_true": statistics.fmean(dict(e["signals"])["self_report_match"] for e in answered) if answered else None,
    }
    names = sorted({name for e in episodes for name, _ in e["signals"]})
    return columns | {name: mean(lambda e: dict(e["signals"]).get(name, 0.0)) for name in names}


def measured(runs, name, seed, process):
    """Evaluations of a run, and the last one's process reward by both rules."""
    own, other = evaluations(runs, name, seed), evaluations(runs, f"{name}-probe", seed)
    last, probe = own[max(own)], other[max(other)]
    for mode, columns in last.items():
        if any(columns[key] != probe[mode][key] for key in ("success", "turns")):
            sys.exit(f"{name}, seed {seed}: the probe played other episodes than the run")
        rules = ("carried", "useful") if process == "carried" else ("useful", "carried")
        columns[rules[0]], columns[rules[1]] = columns["process_reward"], probe[mode]["process_reward"]
        # A call pays 0.3 or −0.3: the two rules differ by 0.6 for each that was carried out and brought nothing.
        columns["idle"] = (columns["carried"] - columns["useful"]) / 0.6
    return own


def interval(xs, sign=""):
    xs = list(xs)
    if None in xs:
        return "–"
    if len(xs) < 2:
        return f"{xs[0]:{sign}.3f}"
    mean, low, high = student(xs)
    return f"{mean:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def row(*cells):
    print("| " + " | ".join(cells) + " |")


def head(*cells):
    row(*cells)
    print("|" + "---|" * len(cells))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    args = parser.parse_args()
    if len(args.seeds) > 1 + max(T_975):
        parser.error(f"at most {1 + max(T_975)} seeds")
    process = lambda name: "useful" if name == "prm-useful" else "carried"
    load = lambda name: [measured(args.runs, name, seed, process(name)) for seed in args.seeds]
    clone, arms = load("clone"), {name: load(name) for name in args.arms}
    last = lambda runs, mode, key: [run[max(run)][mode][key] for run in runs]
    everyone = [("clone", clone), *((ARMS[name], runs) for name, runs in arms.items())]

    print("Success on the held-out tasks after the same number of tokens:\n")
    head("arm", "sampled", "sampled − ORM", "greedy", "greedy − ORM", "updates")
    for title, runs in everyone:
        cells = []
        for mode in ("sampled", "greedy"):
            ours, base = last(runs, mode, "success"), last(arms["orm"], mode, "success")
            cells += [interval(ours), "" if runs is arms["orm"] else against(ours, base)]
        row(title, *cells, " / ".join(str(max(run)) for run in runs))

    for mode in ("sampled", "greedy"):
        print(f"\n{mode.capitalize()} success by seed ({', '.join(map(str, args.seeds))}):\n")
        head("arm", *(f"seed {seed}" for seed in args.seeds))
        for title, runs in everyone:
            row(title, *(f"{x:.3f}" for x in last(runs, mode, "success")))

    keys = {"turns": "turns", "truncated": "cut off", "carried": "process reward, carried", "useful": "process reward, useful",
            "idle": "carried out for nothing", "report_true": "true reports"}
    for mode in ("sampled", "greedy"):
        print(f"\nWhat the episodes look like, {mode}:\n")
        head("arm", *keys.values())
        for title, runs in everyone:
            row(title, *(interval(last(runs, mode, key)) for key in keys))

    # The text compares at equal numbers of training steps.
    shared = sorted(set.intersection(*(set(run) for runs in arms.values() for run in runs)))
    at = lambda name, update: [run[update]["sampled"]["success"] for run in arms[name]]
    curves("Sampled success by update, as far as all runs went", arms, shared, at)

    trained = {name: [training(args.runs, name, seed) for seed in args.seeds] for name in arms}
    of = lambda name, update: [statistics.fmean(run[update - SPAN : update]) for run in trained[name]]
    curves(f"Success on the training tasks, mean of the {SPAN} updates up to this one", arms, [u for u in shared if u >= SPAN], of)
    print(f"\nOn the training tasks, mean of the last {SPAN} updates of the whole budget:\n")
    head("arm", "success", "− ORM")
    ends = {name: [statistics.fmean(run[-SPAN:]) for run in runs] for name, runs in trained.items()}
    for name, xs in ends.items():
        row(ARMS[name], interval(xs), against(xs, ends["orm"]) if name != "orm" else "")


def against(ours, base):
    return interval([a - b for a, b in zip(ours, base)], "+")


def curves(title, arms, updates, at):
    """Means over seeds at some updates, and the difference to ORM at the last of them."""
    print(f"\n{title}; mean over seeds, and the difference to ORM at the last:\n")
    head("arm", *map(str, updates), "− ORM")
    for name in arms:
        means = [f"{statistics.fmean(at(name, update)):.3f}" for update in updates]
        row(ARMS[name], *means, against(at(name, updates[-1]), at("orm", updates[-1])) if name != "orm" else "")


if __name__ == "__main__":
    main()
