#!/usr/bin/env python3
"""Speed of the engine beside the plain-Python reference, on the same recorded episodes.

    python3 plugins/alfworld/benches/compare.py [--reference FILE] [--transcripts FOLDER] [--every N]

Both sides replay the recorded commands, write out the sorted admissible commands after every step and hash all
output, on one thread, and count processor time; each figure is the median of five replays. `--every N` lets the
reference play only each N-th episode. The real environment is not run: its figure was recorded with alfworld 0.4.2
and textworld 1.7.0.
"""
import argparse
import glob
import hashlib
import importlib.util
import json
import lzma
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WORKSPACE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
SHARED = os.path.join(os.path.dirname(WORKSPACE), "shared", "alfworld")
REAL = "12 to 20"
REPLAYS = 5


def engine(transcripts):
    command = ["cargo", "bench", "-q", "-p", "ascribe-alfworld", "--bench", "engine", "--", "--json"]
    env = dict(os.environ, ASCRIBE_ALFWORLD_TRANSCRIPTS=os.path.abspath(transcripts))
    out = subprocess.run(command, cwd=WORKSPACE, env=env, check=True, capture_output=True, text=True).stdout
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if not lines:
        sys.exit(out)
    return json.loads(lines[-1])


def reference(path, transcripts, every):
    """Steps per second with the admissible list, and milliseconds to parse a game: medians of the replays."""
    spec = importlib.util.spec_from_file_location("reference", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    files = sorted(glob.glob(os.path.join(os.path.abspath(transcripts), "*.jsonl.xz")))
    os.chdir(os.path.dirname(os.path.abspath(path)))
    games = module.load()
    episodes = [json.loads(line) for file in files for line in lzma.open(file, "rt")][::every]
    replays = [replay(module, games, episodes) for _ in range(REPLAYS)]
    return tuple(statistics.median(figures) for figures in zip(*replays))


def replay(module, games, episodes):
    steps, seconds, parse = 0, 0.0, 0.0
    digest = hashlib.blake2b()
    for episode in episodes:
        record = games[episode["game"]]
        start = time.process_time()
        game = module.Game(record["pddl_problem"], record["task"], episode["variant"])
        parse += time.process_time() - start
        start = time.process_time()
        for step in episode["steps"]:
            digest.update(game.step(step["cmd"]).encode())
            digest.update(bytes([game.won()]))
            for command in game.adm():
                digest.update(command.encode())
        seconds += time.process_time() - start
        steps += len(episode["steps"])
    return steps / seconds, 1e3 * parse / len(episodes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", default=os.path.join(SHARED, "reference.py"))
    parser.add_argument("--transcripts", default=os.path.join(SHARED, "transcripts"))
    parser.add_argument("--every", type=int, default=1)
    args = parser.parse_args()
    ours = engine(args.transcripts)
    if os.path.exists(args.reference):
        theirs, parse = reference(args.reference, args.transcripts, args.every)
        steps, parsed = f"{theirs:,.0f}", f"{parse:.1f}"
        ratio = f"{ours['steps_per_second_with_list'] / theirs:,.0f}"
    else:
        steps = parsed = ratio = "no reference"
    rows = [
        ("steps/s, admissible list written out", f"{ours['steps_per_second_with_list']:,.0f}", steps, REAL),
        ("ratio to the reference", ratio, "1", ""),
        ("steps/s, without the list", f"{ours['steps_per_second_without_list']:,.0f}", "", ""),
        ("copy of a state, ns", f"{ours['state_copy_ns']:.0f}", "", ""),
        ("verified restore of a snapshot, ns", f"{ours['verified_restore_ns']:.0f}", "", ""),
        ("snapshot, bytes", f"{ours['snapshot_bytes']:.0f}", "", ""),
        ("unpack and compile a game, ms (median)", f"{ours['load_game_ms_median']:.2f}", parsed, "300 to 700"),
        ("unpack and compile a game, ms (slowest)", f"{ours['load_game_ms_slowest']:.2f}", "", ""),
        ("open the index of all games, warm, ms", f"{ours['index_open_warm_ms']:.0f}", "", ""),
    ]
    print(f"{ours['episodes']:.0f} episodes, {ours['steps']:.0f} steps, {ours['games']:.0f} games\n")
    print("| one thread | engine | reference | real environment |")
    print("| --- | ---: | ---: | ---: |")
    for row in rows:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
