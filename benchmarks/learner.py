"""Our learner beside others, and beside what the machine's matrix products allow.

Every contender is a process of its own with its number of threads fixed before its libraries load. They take
turns, a fraction of a second each, so that whatever else the machine does disturbs all alike. A rate is that of the
best stretch of 4 updates in CPU time (of 20 where these are one call): the least disturbed one. The median over turns
stands beside it, and so do rates by the clock. Replay sampling is left out for all. `limit` is the rate at which the
update's matrix products alone could be done if all ran at the best single-precision rate that square products of 256
or 512 reach. Where oneDNN is faster than MKL (`sac.precision: onednn`), ours over others is with oneDNN, as is `limit`.

    python benchmarks/learner.py                 # all of it, ten minutes where nothing else runs; or make bench
    python benchmarks/learner.py --contenders ours,pytorch_sac --seconds 0.2 --rounds 2 --sizes ant --threads 1
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from contenders import CONTENDERS, PRODUCTS, SIZES, able, flops
from turns import Worker, machine, save

HERE = Path(__file__).parent
RIVALS = {
    "sbx": "ours_as_sbx",
    "sbx_20_a_call": "ours_as_sbx",
    "pytorch_sac": "ours",
    "sb3": "ours_as_sb3",
    "sbx_crossq": "ours_crossq",
}
"""Each with our learner set to the same work: how often actor and target are updated."""
COSTS = {
    "ours_crossq": "ours",
    "ours_crossq_onednn": "ours_onednn",
    "ours_crossq_bf16": "ours_bf16",
    "ours_layer_norm": "ours",
}
"""Other critics: what an update of theirs costs in terms of plain SAC's. CrossQ's goal is 1.25."""
TARGETS = {"sbx": (1.1, 1.25), "pytorch_sac": (1.4, 1.6), "sb3": (1.3, 1.5), "limit": (0.6, 0.7)}


def rates_of(worker: Worker) -> dict[str, float]:
    """Updates a second."""
    return {
        "cpu_best": 1.0 / min(turn["best"] for turn in worker.turns),
        "cpu_median": statistics.median(turn["updates"] / turn["cpu"] for turn in worker.turns),
        "wall_median": statistics.median(turn["updates"] / turn["wall"] for turn in worker.turns),
    }


def measure(names: list[str], size: str, threads: int, seconds: float, rounds: int) -> dict[str, dict[str, float]]:
    """Rates by contender, with `limit` and `limit_as_sb3` made of the products'."""
    flags = {"XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'}"}
    script = HERE / "contenders.py"
    workers = []
    for name in names:  # one after the other: they would disturb each other, and everybody else
        workers.append(Worker(name, script, name, size, str(threads), threads=threads, extra=flags))
        workers[-1].ready()
    for _ in range(rounds):
        for worker in workers:
            worker.turn(seconds)
    for worker in workers:
        worker.close()
    rates = {worker.name: rates_of(worker) for worker in workers}
    squares = {name: rates.pop(name) for name in names if name in PRODUCTS}
    if squares:
        operations = {name: 2.0 * PRODUCTS[name][0] ** 3 * PRODUCTS[name][1] for name in squares}
        kinds = next(iter(squares.values()))
        peak = {kind: max(operations[name] * rate[kind] for name, rate in squares.items()) for kind in kinds}
        for name, every in (("limit", 2), ("limit_as_sb3", 1)):
            rates[name] = {kind: value / flops(*SIZES[size], actor_every=every) for kind, value in peak.items()}
        rates["limit"]["gflops"] = peak["cpu_best"] / 1e9
    return rates


def ratios(rates: dict[str, dict[str, float]], kind: str = "cpu_best") -> dict[str, float]:
    """Our rate over each other's at equal work, in float32: by the faster of MKL and oneDNN on this processor."""
    pairs = {**RIVALS, "limit": "ours", "limit_as_sb3": "ours_as_sb3"}
    found = {}
    for them, us in pairs.items():
        own = [rates[name][kind] for name in (us, f"{us}_onednn") if name in rates]
        if own and them in rates:
            found[them] = round(max(own) / rates[them][kind], 3)
    return found


def show(rates: dict[str, dict[str, float]], size: str, threads: int) -> None:
    by_best, by_median = ratios(rates), ratios(rates, "cpu_median")
    print(f"\n{size}, {threads} thread{'s' if threads > 1 else ''}: updates a second")
    print(
        f"{'':16}{'CPU best':>10}{'CPU median':>12}{'wall median':>13}"
        f"{'ours / it':>11}{'by medians':>12}{'must':>6}{'stretch':>9}"
    )
    for name, rate in rates.items():
        line = f"{name:16}{rate['cpu_best']:10.1f}{rate['cpu_median']:12.1f}{rate['wall_median']:13.1f}"
        if name in by_best:
            line += f"{by_best[name]:11.2f}{by_median[name]:12.2f}"
            line += "".join(
                f"{target:{width}.2f}" for target, width in zip(TARGETS.get(name, ()), (6, 9), strict=False)
            )
        print(line)
    for name, plain in COSTS.items():
        if name in rates and plain in rates:
            best, median = (rates[plain][kind] / rates[name][kind] for kind in ("cpu_best", "cpu_median"))
            print(f"{name} takes {best:.2f} times the CPU time of {plain} (best), {median:.2f} (median)")
    if "limit" in rates:
        print(f"products at {rates['limit']['gflops']:.0f} GFLOP/s")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare our SAC learner with others.")
    parser.add_argument("--contenders", help=f"of {', '.join(CONTENDERS)} (default: all this processor can run)")
    parser.add_argument("--sizes", default="ant,halfcheetah", help=f"of {', '.join(SIZES)}")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=20, help="turns of each with one thread; a tenth of it with more")
    parser.add_argument("--out", type=Path, default=Path("results/bench/learner.json"))
    arguments = parser.parse_args()
    names = arguments.contenders.split(",") if arguments.contenders else list(filter(able, CONTENDERS))
    unknown = [name for name in names if name not in CONTENDERS]
    if unknown:
        parser.error(f"unknown contenders: {', '.join(unknown)}")
    tables = []
    for threads in map(int, arguments.threads.split(",")):
        for size in arguments.sizes.split(","):
            # Two threads on a machine that is not free get in each other's way: a few turns are enough to see it.
            rounds = arguments.rounds if threads == 1 else -(-arguments.rounds // 10)
            rates = measure(names, size, threads, arguments.seconds, rounds)
            show(rates, size, threads)
            tables.append({"size": size, "threads": threads, "rates": rates, "ratios": ratios(rates)})
            result = {
                "ratios": tables[0]["ratios"],
                "of": {"size": tables[0]["size"], "threads": tables[0]["threads"], "rate": "cpu_best"},
                "tables": tables,
                "machine": machine(),
                "targets": {name: {"must": must, "stretch": stretch} for name, (must, stretch) in TARGETS.items()},
            }
            save(arguments.out, result)


if __name__ == "__main__":
    main()
