"""Prints the queries of a dashboard as rules, so that promtool can say whether they are PromQL."""
import json
import sys

with open(sys.argv[1]) as f:
    panels = json.load(f)["panels"]
queries = [target["expr"] for panel in panels for target in panel.get("targets", [])]
for grafana, plain in {"$__rate_interval": "5m", "$__range": "1h"}.items():
    queries = [query.replace(grafana, plain) for query in queries]
rules = [{"record": f"dashboard:query{i}", "expr": query} for i, query in enumerate(queries)]
json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, sys.stdout)
