"""Any chat-completions endpoint as a proposer.

`python -m scripts.explore.proposers.chat --url http://host:port/v1 --model NAME [--key-variable VARIABLE]`

The key, where the endpoint wants one, is read from the environment variable that is named. The reply's last JSON object
with a `kind`, or its last Verilog code block, is the candidate; anything else is a line that is no candidate.
"""

import json
import os
import re
import urllib.error
import urllib.request

import typer

from scripts.explore import graphs
from scripts.explore.proposers.client import serve

KEEP = 12
"""Messages of the conversation that are sent again, beside the first."""


def find_candidate(reply: str) -> dict:
    """The candidate in a reply."""
    decoder = json.JSONDecoder()
    found = None
    for match in re.finditer(r"\{", reply):
        try:
            value, _ = decoder.raw_decode(reply, match.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and value.get("kind") in ("graph", "verilog", *graphs.KEYS) and found is None:
            found = value
    if found is not None:
        return {"kind": "graph", "graph": found} if found["kind"] in graphs.KEYS else found
    blocks = re.findall(r"```(?:verilog|systemverilog|sv|v)?\s*\n(.*?)```", reply, re.DOTALL)
    modules = [block for block in blocks if "endmodule" in block]
    if modules:
        return {"kind": "verilog", "verilog": modules[-1]}
    return {"kind": "none"}


class Chat:
    def __init__(self, hello: dict, url: str, model: str, key: str, seconds: float) -> None:
        self.url, self.model, self.key, self.seconds = url.rstrip("/") + "/chat/completions", model, key, seconds
        known = {key: hello[key] for key in ("specification", "baselines")}
        text = (
            f"Suggest a smaller, faster or less power-hungry circuit for this specification:\n{json.dumps(known)}\n"
            f'Answer with one JSON object: graph text\n{graphs.__doc__}\nor {{"kind": "verilog", "verilog": ...}}, one '
            f"combinational module called {hello['specification']['name']} with exactly these ports."
        )
        self.first = {"role": "user", "content": text}
        self.talk: list[dict] = []

    def propose(self, number: int) -> dict:
        body = json.dumps({"model": self.model, "messages": [self.first, *self.talk[-KEEP:]]}).encode()
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self.key}"} if self.key else {})}
        try:
            request = urllib.request.Request(self.url, body, headers)
            with urllib.request.urlopen(request, timeout=self.seconds) as response:
                reply = str(json.load(response)["choices"][0]["message"]["content"])
        except (OSError, urllib.error.URLError, ValueError, KeyError, IndexError, TypeError) as error:
            return {"kind": "none", "rationale": f"the endpoint did not answer: {error}"}
        self.talk.append({"role": "assistant", "content": reply[:20000]})
        return {"rationale": reply[:1000], **find_candidate(reply), "origin": f"chat: {self.model}"}

    def learn(self, result: dict) -> None:
        self.talk.append({"role": "user", "content": json.dumps(result)[:20000]})


def main(
    url: str = typer.Option(..., help="Base address of the endpoint, up to and with /v1."),
    model: str = typer.Option(..., help="Name of the model."),
    key_variable: str = typer.Option("", help="Environment variable that holds the key."),
    seconds: float = typer.Option(90.0, help="Longest wait for a reply."),
) -> None:
    """Ask a chat-completions endpoint."""
    key = os.environ.get(key_variable, "") if key_variable else ""
    serve(lambda hello: Chat(hello, url, model, key, seconds))


if __name__ == "__main__":
    typer.run(main)
