#!/usr/bin/env python3
"""Speed of estimators beside vectorised NumPy, on the same arrays in the same run.

    python3 plugins/estimators/benches/compare.py [--quick]

Needs NumPy. Both sides run on one thread and count processor time; figures are medians, of nine runs here and at least
seven there. Before anything is timed, both must agree to 1e-4 of 1 + |x|. `--quick` leaves out the growth with the size.

Ours is the estimator on a batch of records, as the training loop calls it, and apart from it the building of that batch
from the records of rollouts. NumPy has its arrays ready, observations as small integers, in the layout of official code:
a row per turn (GiGPO, HGPO) or a matrix of padded rows of tokens (IGPO, GAE). Official Python is not run: its figures are
processor seconds that were recorded for these sizes on such a machine.
"""
import os

os.environ.update({name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")})

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
WORKSPACE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
GROUP = 8
ALPHABET = 16
RUNS = 9
RUN_SECONDS = 0.15
TOLERANCE = 1e-4
EPSILON = 1e-6
# Processor seconds of official Python.
RECORDED = {"gigpo": 28.5, "hgpo": 3.2, "igpo": 25.0, "gae": 0.59, "tempo": 0.013}


# The estimators in NumPy.


def by_sorting(keys, _bound):
    """Names equal keys, of any size, by small numbers."""
    distinct, number = np.unique(keys, return_inverse=True)
    return number.reshape(-1), distinct.size


def by_table(keys, bound):
    """The same for keys below `bound`: as they are where a table of all of them is no larger than the data."""
    return (keys, bound) if bound <= keys.size else by_sorting(keys, bound)


def standardised(cluster, n_clusters, x, ddof):
    """Distance of each number from its cluster's mean in standard deviations, and the sizes of the clusters."""
    n = np.bincount(cluster, minlength=n_clusters)
    mean = np.bincount(cluster, weights=x, minlength=n_clusters) / np.maximum(n, 1)
    distance = x - mean[cluster]
    squares = np.bincount(cluster, weights=distance * distance, minlength=n_clusters)
    unit = np.sqrt(squares / np.maximum(n - ddof, 1)) + EPSILON
    return distance / unit[cluster], n


def turn_returns(rewards, gamma):
    """Discounted returns over turns, `[trajectories, turns]`, kept in single precision as in official code."""
    steps = np.ascontiguousarray(rewards.T, dtype=np.float64)
    for t in range(len(steps) - 2, -1, -1):
        steps[t] += gamma * steps[t + 1]
    return steps.T.astype(np.float32).astype(np.float64)


def gigpo(rewards, anchors, group, numbered=by_table, gamma=0.95):
    """Returns and advantages per turn; statistics of outcomes over turns."""
    n_turns, n_groups = rewards.shape[1], group[-1] + 1
    returns = turn_returns(rewards, gamma)
    score = rewards.sum(axis=1, dtype=np.float64)
    n = np.bincount(group) * n_turns
    mean = np.bincount(group, weights=score) * n_turns / n
    distance = score - mean[group]
    deviation = np.sqrt(np.bincount(group, weights=distance * distance) * n_turns / (n - 1))
    episode = distance / (deviation + EPSILON)[group]
    cluster, n_clusters = numbered((group[:, None] * ALPHABET + anchors).ravel(), n_groups * ALPHABET)
    step, _ = standardised(cluster, n_clusters, returns.ravel(), 1)
    return returns, episode[:, None] + step.reshape(rewards.shape)


def hgpo(rewards, anchors, group, numbered=by_table, levels=2, gamma=0.95):
    """Advantages per turn."""
    returns = turn_returns(rewards, gamma)
    total, weights = np.zeros(rewards.shape), np.zeros(rewards.shape)
    below, n_below = np.broadcast_to(group[:, None], rewards.shape), group[-1] + 1
    for level in range(1, levels + 2):
        seen = anchors[:, level - 1 :]
        # The cluster of the turn before, a level below; of the first level, the group.
        before = below if level == 1 else below[:, :-1]
        cluster, n_below = numbered((before * ALPHABET + seen).ravel(), n_below * ALPHABET)
        advantage, n = standardised(cluster, n_below, returns[:, level - 1 :].ravel(), 0)
        weight = np.where((n > 1)[cluster] & (advantage != 0), level + 1.0, 0.0).reshape(seen.shape)
        below = cluster.reshape(seen.shape)
        total[:, level - 1 :] += weight * advantage.reshape(seen.shape)
        weights[:, level - 1 :] += weight
    return total / (weights + EPSILON)


def igpo_turns(earned, is_outcome, group_of_turn, n_groups):
    """What turns earned, gains compared with gains and outcomes with outcomes of the group."""
    kind, n_kinds = group_of_turn * 2 + is_outcome, 2 * n_groups
    n = np.maximum(np.bincount(kind, minlength=n_kinds), 1)
    distance = earned - (np.bincount(kind, weights=earned, minlength=n_kinds) / n)[kind]
    variance = np.bincount(kind, weights=distance * distance, minlength=n_kinds) / n
    return distance / (np.sqrt(variance + 1e-8) + EPSILON)[kind]


def igpo_per_turn(gains, outcomes, group, gamma=1.0):
    """Advantages per turn of trajectories with as many turns each."""
    n_paths, n_turns = gains.shape
    earned = gains.astype(np.float64)
    earned[:, -1] = outcomes
    is_outcome = np.zeros(gains.shape, dtype=np.int64)
    is_outcome[:, -1] = 1
    earned = igpo_turns(earned.ravel(), is_outcome.ravel(), np.repeat(group, n_turns), group[-1] + 1)
    steps = np.ascontiguousarray(earned.reshape(gains.shape).T)
    for t in range(n_turns - 2, -1, -1):
        steps[t] += gamma * steps[t + 1]
    return steps.T


def igpo_per_token(token_rewards, mask, group, gamma=1.0):
    """Advantages per token from padded rows, as the official function has them: a turn ends at a reward."""
    row, column = np.nonzero(token_rewards * mask)
    is_outcome = column == (mask.sum(axis=1, dtype=np.int64) - 1)[row]
    earned = token_rewards[row, column].astype(np.float64)
    earned = igpo_turns(earned, is_outcome, group[row], group[-1] + 1)
    # Rows of turns, aligned at their end.
    n_turns = np.bincount(row, minlength=len(group))
    first = np.cumsum(n_turns) - n_turns
    place = n_turns.max() - n_turns[row] + np.arange(row.size) - first[row]
    steps = np.zeros((n_turns.max(), len(group)))
    steps[place, row] = earned
    for t in range(len(steps) - 2, -1, -1):
        steps[t] += gamma * steps[t + 1]
    # Each row is its turns' numbers, as often as they have tokens, and zeros after the last boundary.
    begin = np.zeros(row.size, dtype=np.int64)
    begin[1:] = column[:-1] + 1
    begin[first] = 0
    end = column[first + n_turns - 1] + 1
    lengths = np.insert(column + 1 - begin, first + n_turns, token_rewards.shape[1] - end)
    numbers = np.insert(steps[place, row].astype(np.float32), first + n_turns, 0.0)
    return np.repeat(numbers, lengths).reshape(token_rewards.shape) * mask


def gae_steps(rewards, values, gamma=1.0, lam=0.95):
    """Advantages per token, time first."""
    delta = rewards - values
    delta[:, :-1] += values[:, 1:] if gamma == 1.0 else np.float32(gamma) * values[:, 1:]
    # Time first, so that a step is a run of memory.
    steps = np.ascontiguousarray(delta.T)
    decay, carried = np.float32(gamma * lam), np.empty_like(steps[0])
    for t in range(len(steps) - 2, -1, -1):
        np.multiply(steps[t + 1], decay, out=carried)
        steps[t] += carried
    return steps


def gae(rewards, values):
    """Whitened advantages per token."""
    steps = gae_steps(rewards, values)
    steps -= steps.mean(dtype=np.float64).astype(np.float32)
    flat = steps.ravel()
    variance = float(np.dot(flat, flat)) / (flat.size - 1)
    steps *= np.float32(1.0 / np.sqrt(variance + 1e-8))
    return steps.T


def tempo_actor(rewards, endpoints):
    """Signals for the actor, `[groups, branches]`."""
    ended = np.isnan(endpoints)
    values = np.where(ended, 0.0, endpoints)
    returns = rewards + values
    target = returns.mean(axis=1)
    advantages = returns - target[:, None]
    unpaid = ~ended & (np.abs(rewards) <= 1e-12)
    n = np.maximum(unpaid.sum(axis=1), 1)
    distance = np.where(unpaid, values - (np.where(unpaid, values, 0.0).sum(axis=1) / n)[:, None], 0.0)
    deviation = np.sqrt((distance * distance).sum(axis=1) / n)
    return values, returns, target, advantages, (np.abs(advantages) <= 1e-12).all(axis=1), deviation


def tempo_critic(estimates, target):
    """Signals for the critic, `[groups, samples]`."""
    failed = np.isnan(estimates)
    errors = np.where(failed, 1.0, np.abs(estimates - target[:, None]))
    advantages = errors.mean(axis=1)[:, None] - errors
    n = (~failed).sum(axis=1)
    mean = np.where(failed, 0.0, estimates).sum(axis=1) / np.maximum(n, 1)
    return -errors, advantages, errors, (np.abs(advantages) <= 1e-12).all(axis=1), n, mean


# Measuring.


def seconds(work):
    """Processor seconds of a call, the median of the runs."""
    start = time.perf_counter()
    work()
    calls = max(1, int(np.ceil(RUN_SECONDS / (time.perf_counter() - start))))
    figures = []
    for _ in range(RUNS):
        before = time.process_time()
        for _ in range(calls):
            work()
        figures.append((time.process_time() - before) / calls)
    return statistics.median(figures)


class Case:
    """Arrays of one case, shared with our side through a folder."""

    def __init__(self, name, folder, steps, arrays):
        self.name, self.folder, self.steps = name, folder, steps
        for key, array in arrays.items():
            kind = "<f4" if array.dtype.kind == "f" else "<u4"
            array.astype(kind).tofile(os.path.join(folder, key))

    def ours(self):
        """Runs our side: its seconds by name."""
        command = ["cargo", "run", "-q", "--release", "-p", "ascribe-estimators", "--example", "bench", "--"]
        command += [self.name, self.folder, str(self.steps)]
        out = subprocess.run(command, cwd=WORKSPACE, check=True, stdout=subprocess.PIPE, text=True).stdout
        return json.loads(out)

    def agrees(self, key, theirs):
        ours = np.fromfile(os.path.join(self.folder, f"ours.{key}"), dtype="<f4")
        theirs = np.asarray(theirs, dtype=np.float64).ravel()
        if ours.size != theirs.size or not np.all(np.abs(ours - theirs) <= TOLERANCE * (1 + np.abs(theirs))):
            worst = np.abs(ours - theirs).max() if ours.size == theirs.size else "sizes"
            sys.exit(f"{self.name}: `{key}` differs ({worst})")


def groups_of(n_paths):
    return np.arange(n_paths) // GROUP


def walks(name, folder, n_paths, n_turns=50):
    """Rewards and anchors of a turn each, as a case and as arrays. A group shares its first observation."""
    rng = np.random.default_rng(n_paths)
    rewards = rng.standard_normal((n_paths, n_turns)).astype(np.float32)
    anchors = rng.integers(0, ALPHABET, (n_paths, n_turns))
    anchors[:, 0] = 0
    return Case(name, folder, n_turns, {"reward": rewards, "anchor": anchors}), rewards, anchors, groups_of(n_paths)


def turns(folder, n_paths, n_turns=10, n_tokens=4096):
    """Gains, outcomes and lengths, and the same as padded rows of tokens."""
    rng = np.random.default_rng(n_paths)
    gains = rng.standard_normal((n_paths, n_turns)).astype(np.float32)
    outcomes = rng.standard_normal(n_paths).astype(np.float32)
    cuts = np.array([rng.choice(n_tokens - 1, n_turns - 1, replace=False) for _ in range(n_paths)]) + 1
    ends = np.concatenate([np.sort(cuts, axis=1), np.full((n_paths, 1), n_tokens)], axis=1)
    lengths = np.diff(ends, axis=1, prepend=0)
    token_rewards = np.zeros((n_paths, n_tokens), dtype=np.float32)
    np.put_along_axis(token_rewards, ends - 1, np.concatenate([gains[:, :-1], outcomes[:, None]], axis=1), axis=1)
    case = Case("igpo", folder, n_turns, {"gain": gains, "outcome": outcomes, "length": lengths})
    return case, gains, outcomes, token_rewards, np.ones_like(token_rewards), groups_of(n_paths)


def tokens(folder, n_paths, n_tokens=4096):
    rng = np.random.default_rng(n_paths)
    rewards, values = rng.standard_normal((2, n_paths, n_tokens)).astype(np.float32)
    return Case("gae", folder, n_tokens, {"reward": rewards, "value": values}), rewards, values


def branches(folder, n_groups):
    rng = np.random.default_rng(n_groups)
    rewards = (rng.random((n_groups, GROUP)) < 0.3).astype(np.float32)
    endpoints, estimates = rng.random((2, n_groups, GROUP)).astype(np.float32)
    endpoints[rng.random(endpoints.shape) < 0.4] = np.nan
    estimates[rng.random(estimates.shape) < 0.1] = np.nan
    case = Case("tempo", folder, 1, {"reward": rewards, "endpoint": endpoints, "estimate": estimates})
    return case, *(x.astype(np.float64) for x in (rewards, endpoints, estimates))


def milliseconds(x):
    return f"{1e3 * x:,.2f}"


def row(name, ours, build, theirs, recorded):
    """A line of the table."""
    build = "" if build is None else milliseconds(build)
    figures = [milliseconds(ours), build, milliseconds(theirs), f"{theirs / ours:,.1f}"]
    if recorded is None:
        figures += ["", ""]
    else:
        figures += [f"{1e3 * recorded:,.0f}", f"{recorded / ours:,.0f}"]
    print("| " + " | ".join([name, *figures]) + " |", flush=True)


def compare(folder):
    print("| one thread, ms | ours | building the batch | NumPy | ratio | official, recorded | ratio |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")

    case, *arrays = walks("gigpo", folder, 1024)
    ours = case.ours()
    returns, advantages = gigpo(*arrays)
    case.agrees("returns", returns)
    case.agrees("advantages", advantages)
    row("GiGPO, 51,200 turns", ours["estimate"], ours["build"], seconds(lambda: gigpo(*arrays)), RECORDED["gigpo"])

    row("— NumPy with keys of any size", ours["estimate"], ours["build"], seconds(lambda: gigpo(*arrays, by_sorting)), None)

    case, *arrays = walks("hgpo", folder, 1024)
    ours = case.ours()
    case.agrees("advantages", hgpo(*arrays))
    row("HGPO, K = 2, 51,200 turns", ours["estimate"], ours["build"], seconds(lambda: hgpo(*arrays)), RECORDED["hgpo"])

    row("— NumPy with keys of any size", ours["estimate"], ours["build"], seconds(lambda: hgpo(*arrays, by_sorting)), None)

    case, gains, outcomes, *padded = turns(folder, 1024)
    group = padded[-1]
    ours = case.ours()
    case.agrees("advantages", igpo_per_turn(gains, outcomes, group))
    case.agrees("on_tokens", igpo_per_token(*padded))
    per_token, per_turn = seconds(lambda: igpo_per_token(*padded)), seconds(lambda: igpo_per_turn(gains, outcomes, group))
    row("IGPO, 10,240 turns of 4.2 M tokens", ours["estimate"], ours["build"], per_token, RECORDED["igpo"])
    row("— spread onto the tokens", ours["spread"], ours["build"], per_token, RECORDED["igpo"])
    row("— NumPy with columns of turns", ours["estimate"], ours["build"], per_turn, None)

    case, *arrays = tokens(folder, 1024)
    ours = case.ours()
    whitened = gae(*arrays)
    case.agrees("advantages", whitened)
    case.agrees("on_slices", whitened)
    theirs = seconds(lambda: gae(*arrays))
    row("GAE, 4.2 M tokens, whitened", ours["estimate"], ours["build"], theirs, RECORDED["gae"])
    row("— functions on slices", ours["slices"], None, theirs, RECORDED["gae"])
    row("— not whitened", ours["alone"], ours["build"], seconds(lambda: gae_steps(*arrays)), None)

    case, rewards, endpoints, estimates = branches(folder, 1024)
    ours = case.ours()
    actor = tempo_actor(rewards, endpoints)
    case.agrees("advantages", actor[3])
    case.agrees("actor", actor[3])
    case.agrees("critic", tempo_critic(estimates, actor[2])[1])
    theirs = seconds(lambda: tempo_actor(rewards, endpoints))
    row("TEMPO, 1,024 groups of 8", ours["estimate"], ours["build"], theirs, None)
    theirs = seconds(lambda: tempo_critic(estimates, tempo_actor(rewards, endpoints)[2]))
    row("— signals of actor and critic on slices", ours["slices"], None, theirs, RECORDED["tempo"])


def growth(folder):
    """Slope of log seconds over log size, 1 where the work is proportional to the size."""
    sizes = {
        "GiGPO, 10⁴ to 10⁶ turns": [lambda n=n: walks("gigpo", folder, n)[0] for n in (200, 2000, 20000)],
        "HGPO, 10⁴ to 10⁶ turns": [lambda n=n: walks("hgpo", folder, n)[0] for n in (200, 2000, 20000)],
        "IGPO, 10³ to 10⁵ turns": [lambda n=n: turns(folder, n, n_tokens=40)[0] for n in (104, 1000, 10000)],
        "GAE, 6·10⁴ to 4·10⁶ tokens": [lambda n=n: tokens(folder, n)[0] for n in (16, 128, 1024)],
        "TEMPO, 10² to 10⁴ groups": [lambda n=n: branches(folder, n)[0] for n in (100, 1000, 10000)],
    }
    print("\n| growth of ours | smallest, ms | largest, ms | slope |")
    print("| --- | ---: | ---: | ---: |")
    for name, cases in sizes.items():
        of_size, figures = [], []
        for case in cases:
            case = case()
            of_size.append(os.path.getsize(os.path.join(folder, "reward" if case.name != "igpo" else "gain")))
            figures.append(case.ours()["estimate"])
        slope = np.polyfit(np.log(of_size), np.log(figures), 1)[0]
        print(f"| {name} | {milliseconds(figures[0])} | {milliseconds(figures[-1])} | {slope:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(folder)
        if not args.quick:
            growth(folder)


if __name__ == "__main__":
    main()
