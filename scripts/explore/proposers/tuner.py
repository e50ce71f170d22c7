"""Optuna searches the choices behind a compressor tree and its adder, or an adder's spans.

`python -m scripts.explore.proposers.tuner [--seed N]`; needs the `optuna` package.
"""

import random

import typer

from scripts.explore import compressor, prefix, trees
from scripts.explore.judge import block
from scripts.explore.proposers.client import serve
from scripts.explore.proposers.evolve import ADDERS, mutate_prefix


class Tuner:
    def __init__(self, hello: dict, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.specification = block(hello["specification"]["name"])
        self.study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed), direction="minimize")
        self.open: dict[int, optuna.Trial] = {}
        for number, entry in enumerate(hello["history"]):  # the same choices as before a kill, for the same figures
            self.propose(number)
            self.learn({"number": number, **entry["result"]})

    def propose(self, number: int) -> dict:
        trial = self.study.ask()
        self.open[number] = trial
        labels = {"origin": "optuna", "rationale": ""}
        generator = random.Random(trial.suggest_int("seed", 0, 63))
        if self.specification.name.startswith("add_"):
            width = self.specification.inputs[0].width
            nodes = prefix.CLASSICAL[trial.suggest_categorical("start", ADDERS)](width)
            for _ in range(trial.suggest_int("steps", 0, 24)):
                nodes = mutate_prefix(nodes, width, generator)
            return {"kind": "graph", "graph": {"kind": "prefix", "nodes": nodes}, **labels}
        rows = trial.suggest_categorical("rows", compressor.ROWS)
        made = compressor.sources(self.specification, rows)
        ripple = trial.suggest_int("ripple", 0, len(made.columns) - 1)
        chance = trial.suggest_float("chance", 0.0, 0.4)
        tree = trees.three_greedy(made.heights, made.arrival, ripple, generator, chance)
        adder = trial.suggest_categorical("adder", (*prefix.ARRIVAL, *ADDERS))
        return {"kind": "graph", "graph": {"kind": "compressor", "rows": rows, "tree": tree, "adder": adder}, **labels}

    def learn(self, result: dict) -> None:
        trial = self.open.pop(result["number"], None)
        if trial is None:
            return
        if result["verdict"] != "correct":
            self.study.tell(trial, 1e12)
        else:
            self.study.tell(trial, min(point["area"] * point["delay"] for point in result["points"]))


def main(seed: int = typer.Option(1, help="Seed of the sampler.")) -> None:
    """Tree-structured Parzen search with Optuna."""
    serve(lambda hello: Tuner(hello, seed))


if __name__ == "__main__":
    typer.run(main)
