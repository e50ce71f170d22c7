"""Runs inside the sandbox: executes a list of Yosys commands and prints the files it is asked for as one JSON object.

Imports nothing of this repository: it is handed to the sandbox as a file. Yosys's own log goes to standard error.
"""

import json
import os
import sys


def main() -> None:
    with open("/in/job.json") as file:
        job = json.load(file)
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from pyosys import libyosys

    design = libyosys.Design()
    for command in job["commands"]:
        libyosys.run_pass(command, design)
    results = {}
    for name in job["results"]:
        with open(name) as file:
            results[name] = file.read()
    json.dump(results, answer)
    answer.close()
    sys.stdout.flush()
    os._exit(0)  # Yosys's teardown at interpreter exit is slow and has nothing left to do


if __name__ == "__main__":
    main()
