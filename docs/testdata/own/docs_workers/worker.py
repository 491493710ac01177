#!/usr/bin/env python3
"""A persistent worker for `sluice exec --persistent`: it starts once and answers one item after another.

    sluice exec --persistent --items items.jsonl -- python3 worker.py

Put your own work into `work`. Only the standard library is needed.
"""

import json
import os
import sys
import threading

HEARTBEAT = 15.0  # seconds; Sluice takes a worker for hung that says nothing for 60

# Answers go to what was standard output. Whatever else prints, such as a library that greets, now goes to standard error:
# a line among the answers that is none would end this worker.
answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)
lock = threading.Lock()  # a heartbeat must not come in the middle of an answer


def say(message):
    with lock:
        answers.write(json.dumps(message) + "\n")
        answers.flush()


def beat():
    while not stopped.wait(HEARTBEAT):
        say({"heartbeat": True})


def work(item, attempt):
    """Return the result of one item, anything that JSON can hold."""
    text = item if isinstance(item, str) else item["prompt"]
    return {"words": len(text.split())}


def answer(request):
    try:
        return {"id": request["id"], "ok": True, "result": work(request["item"], request["attempt"])}
    except Exception as e:  # it fails this item alone
        # Where the provider says more, pass it on: {"message": …, "kind": "rate_limit", "retry_after_s": 12}
        return {"id": request["id"], "ok": False, "error": {"message": f"{type(e).__name__}: {e}"}}


stopped = threading.Event()
threading.Thread(target=beat, daemon=True).start()
for line in sys.stdin.buffer:  # until Sluice has no more items
    say(answer(json.loads(line)))
stopped.set()
