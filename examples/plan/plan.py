"""Reads the limits of a Python program from sluice plan."""

import json
import subprocess


def plan(*flags):
    """Returns the document of sluice plan. Raises CalledProcessError if sluice rejects a flag."""
    run = subprocess.run(["sluice", "plan", "--json", *flags], check=True, stdout=subprocess.PIPE)
    return json.loads(run.stdout)


if __name__ == "__main__":
    limits = plan("--provider", "anthropic", "--tier", "survey-2025", "--processes", "2")
    for name in ("cap_model_calls", "cap_model_nodes", "cap_model_throughput_rpm", "cap_model_max_tokens"):
        print(name, limits[name])
