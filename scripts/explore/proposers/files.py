"""File drop: hands in the candidates of a folder, `*.json` (graph text) and `*.v`, `*.sv`, in order of their names.

`python -m scripts.explore.proposers.files FOLDER [--watch]`; with `--watch` it waits for more until the budget ends.
"""

import json
import time
from pathlib import Path

import typer

from scripts.explore.proposers.client import serve


class Files:
    def __init__(self, hello: dict, folder: Path, watch: bool) -> None:
        self.folder, self.watch = folder, watch
        done = {entry["origin"].removeprefix("file: ") for entry in hello["history"]}
        self.seen = {path.name for path in self._files() if path.name in done}

    def _files(self) -> list[Path]:
        return sorted(
            path for path in self.folder.iterdir() if path.suffix in (".json", ".v", ".sv") and path.is_file()
        )

    def propose(self, number: int) -> dict:
        while True:
            for path in self._files():
                if path.name in self.seen:
                    continue
                self.seen.add(path.name)
                labels = {"origin": f"file: {path.name}", "rationale": ""}
                content = path.read_text(errors="replace")
                if path.suffix != ".json":
                    return {"kind": "verilog", "verilog": content, **labels}
                try:
                    graph = json.loads(content)
                except ValueError:
                    graph = {"kind": "not JSON"}
                return {"kind": "graph", "graph": graph if isinstance(graph, dict) else {"kind": "no object"}, **labels}
            if not self.watch:
                return {"kind": "stop"}
            time.sleep(0.5)

    def learn(self, result: dict) -> None:
        """Nothing: what comes of a file is in the archive and on the terminal."""


def main(folder: Path, watch: bool = typer.Option(False, help="Wait for more files.")) -> None:
    """Hand in the files of a folder."""
    serve(lambda hello: Files(hello, folder, watch))


if __name__ == "__main__":
    typer.run(main)
