#!/usr/bin/env python3
"""Records how the official Python SDKs speak to Batch APIs, by driving them against a server on the loopback.

    python3 -m venv v && v/bin/pip install openai==3.54.0 anthropic==2.12.0 google-genai==3.4.0
    v/bin/python internal/batchjob/testdata/sequence/record.py
    python3 -m venv v1 && v1/bin/pip install anthropic==1.17.0
    v1/bin/python internal/batchjob/testdata/sequence/record.py anthropic anthropic-2023-06-01

It writes <provider>.json beside itself: what was asked, and what the server answered, which is made up after the types of the
SDKs. Values that differ by run are struck: the port, and boundaries of multipart bodies. Of Anthropic there are two: major version 2 of its SDK speaks API version 2026-10-21, and 1 is the last that speaks 2023-06-01.
"""

import email.parser
import email.policy
import importlib.metadata
import io
import json
import os
import sys
import threading
import urllib.parse
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HERE = os.path.dirname(os.path.abspath(__file__))
KEY = "sk-sentinel-5d1f0c7e9b2a4836"
TAG = "0123456789ab"
HEADERS = ("authorization", "x-api-key", "x-goog-api-key", "anthropic-version", "anthropic-beta", "content-type", "accept",
           "idempotency-key", "range")


class Recorder(BaseHTTPRequestHandler):
    """Answers as a provider would, and keeps what it was asked."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline().strip() or b"0", 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        url = urllib.parse.urlsplit(self.path)
        headers, content = self.server.reply(self.command, url.path, self.headers)
        base = f"http://127.0.0.1:{self.server.server_port}"
        entry = self.entry(url, body)
        told = {k.lower(): v.replace(base, "BASE") for k, v in headers.items() if k.lower().startswith("x-goog-upload")}
        entry["answer"] = {**({"headers": told} if told else {}), "body": content.decode().replace(base, "BASE")}
        self.server.kept.append(entry)
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = answer

    def entry(self, url, body):
        entry = {"method": self.command, "path": url.path}
        if url.query:
            entry["query"] = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        kept = {k.lower(): v.replace(KEY, "KEY") for k, v in self.headers.items()
                if k.lower() in HEADERS or k.lower().startswith("x-goog-upload")}
        kind = kept.get("content-type", "")
        if kind.startswith("multipart/"):
            kept["content-type"] = kind.split(";")[0]
            entry["multipart"] = multipart(kind, body)
        elif body and kind.startswith("application/json") and not kept.get("x-goog-upload-command", "").startswith("upload"):
            entry["json"] = json.loads(body)
        elif body:
            entry["lines"] = lines(body)
        entry["headers"] = dict(sorted(kept.items()))
        return entry


def multipart(kind, body):
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body)
    parts = []
    for part in message.iter_parts():
        field = {"name": part.get_param("name", header="content-disposition")}
        content = part.get_payload(decode=True)
        if part.get_filename():
            field["filename"] = part.get_filename()
            field["content_type"] = part.get("content-type", "")
            field["lines"] = lines(content)
        else:
            field["value"] = content.decode()
        parts.append(field)
    return sorted(parts, key=lambda p: p["name"])


def lines(body):
    return [json.loads(line) for line in body.decode().splitlines()]


def record(provider, package, sources, reply, drive):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    base = f"http://127.0.0.1:{server.server_port}"
    server.kept, steps = [], []

    def answer(method, path, headers):
        out = reply(method, path, headers, base)
        if isinstance(out, tuple):
            return out
        if isinstance(out, bytes):
            return {"Content-Type": "application/octet-stream"}, out
        return {"Content-Type": "application/json"}, json.dumps(out).encode()

    server.reply = answer
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def step(name, call, run):
        del server.kept[:]
        run()
        steps.extend({"step": name, "call": call, **entry} for entry in server.kept)

    drive(base, step)
    server.shutdown()
    version = importlib.metadata.version(package)
    doc = {"sdk": {"name": package, "version": version, "sources": sources}, "steps": steps}
    with open(os.path.join(HERE, provider + ".json"), "w", encoding="utf-8") as f:
        f.write(text(doc) + "\n")


def text(value, indent="", depth=0):
    """One member a line down to the members of a step; below them, one line holds all."""
    inner = indent + "  "
    if depth < 3 and isinstance(value, dict):
        return "{\n" + ",\n".join(f"{inner}{json.dumps(k)}: {text(v, inner, depth + 1)}" for k, v in value.items()) + f"\n{indent}}}"
    if depth < 3 and isinstance(value, list):
        return "[\n" + ",\n".join(inner + text(v, inner, depth + 1) for v in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)


def jsonl(*objects):
    return "".join(json.dumps(o, separators=(",", ":")) + "\n" for o in objects).encode()


def openai():
    from openai import OpenAI

    chat = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}]}
    requests = jsonl(*({"custom_id": f"row-{i}", "method": "POST", "url": "/v1/chat/completions", "body": chat} for i in (1, 2)))
    batch = {"id": "batch_1", "object": "batch", "endpoint": "/v1/chat/completions", "input_file_id": "file-1",
             "completion_window": "24h", "status": "completed", "output_file_id": "file-2", "error_file_id": None,
             "created_at": 1700000000, "request_counts": {"total": 2, "completed": 2, "failed": 0},
             "metadata": {"sluice_part": TAG}}
    file = {"id": "file-1", "object": "file", "bytes": 1, "created_at": 1700000000, "filename": TAG + ".jsonl", "purpose": "batch"}

    def reply(method, path, headers, base):
        if path.endswith("/content"):
            return jsonl({"id": "r", "custom_id": "row-1", "response": None, "error": None})
        if "/files" in path:
            return {"object": "list", "data": [file], "has_more": False} if method == "GET" else file
        return {"object": "list", "data": [batch], "has_more": False} if method == "GET" and path.endswith("/batches") else batch

    def drive(base, step):
        c = OpenAI(api_key=KEY, base_url=base + "/v1", max_retries=0)
        step("upload", "files.create(file, purpose='batch')", lambda: c.files.create(file=(TAG + ".jsonl", requests), purpose="batch"))
        step("create", "batches.create(input_file_id, endpoint, completion_window, metadata)", lambda: c.batches.create(
            input_file_id="file-1", endpoint="/v1/chat/completions", completion_window="24h", metadata={"sluice_part": TAG}))
        step("find", "batches.list(limit=100)", lambda: list(c.batches.list(limit=100)))
        step("get", "batches.retrieve", lambda: c.batches.retrieve("batch_1"))
        step("cancel", "batches.cancel", lambda: c.batches.cancel("batch_1"))
        step("fetch", "files.content", lambda: c.files.content("file-2").read())

    raw = "https://github.com/openai/openai-python/blob/v3.54.0/src/openai/"
    record("openai", "openai", [raw + "resources/files.py", raw + "resources/batches.py", raw + "types/batch.py"], reply, drive)


def anthropic(name="anthropic"):
    from anthropic import Anthropic

    params = {"model": "claude-haiku-4-5", "max_tokens": 16, "messages": [{"role": "user", "content": "hi"}]}
    requests = [{"custom_id": f"row-{i}", "params": params} for i in (1, 2)]

    def reply(method, path, headers, base):
        if path.endswith("/results"):
            return {"Content-Type": "application/x-jsonl"}, jsonl({"custom_id": "row-1", "result": {"type": "expired"}})
        batch = {"id": "msgbatch_1", "type": "message_batch", "processing_status": "ended",
                 "request_counts": {"processing": 0, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 2},
                 "created_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-02T00:00:00Z", "ended_at": "2026-01-01T01:00:00Z",
                 "results_url": base + "/v1/messages/batches/msgbatch_1/results"}
        if method == "GET" and path.endswith("/batches"):
            return {"data": [batch], "has_more": False, "first_id": "msgbatch_1", "last_id": "msgbatch_1"}
        return batch

    def drive(base, step):
        c = Anthropic(api_key=KEY, base_url=base, max_retries=0)
        b = c.messages.batches
        step("create", "messages.batches.create(requests)", lambda: b.create(requests=requests))
        step("find", "messages.batches.list(limit=100)", lambda: list(b.list(limit=100)))
        step("get", "messages.batches.retrieve", lambda: b.retrieve("msgbatch_1"))
        step("cancel", "messages.batches.cancel", lambda: b.cancel("msgbatch_1"))
        step("fetch", "messages.batches.results", lambda: list(b.results("msgbatch_1")))

    raw = f"https://github.com/anthropics/anthropic-sdk-python/blob/v{importlib.metadata.version('anthropic')}/src/anthropic/"
    record(name, "anthropic", [raw + "resources/messages/batches.py", raw + "types/messages/message_batch.py", raw + "_client.py"],
           reply, drive)


def gemini():
    from google import genai

    requests = jsonl(*({"key": f"row-{i}", "request": {"contents": [{"parts": [{"text": "hi"}]}]}} for i in (1, 2)))
    file = {"name": "files/f1", "displayName": TAG, "mimeType": "application/jsonl", "state": "ACTIVE", "uri": "https://x/files/f1"}
    job = {"name": "batches/b1", "done": True, "metadata": {
        "@type": "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch", "model": "models/gemini-2.5-flash",
        "displayName": TAG, "state": "BATCH_STATE_SUCCEEDED", "createTime": "2026-01-01T00:00:00Z",
        "output": {"responsesFile": "files/batch-b1"}, "batchStats": {"requestCount": "2", "successfulRequestCount": "2"}}}

    def reply(method, path, headers, base):
        if path.startswith("/upload/") and headers["X-Goog-Upload-Command"] == "start":
            return {"X-Goog-Upload-URL": base + path + "?upload_id=u1&upload_protocol=resumable", "X-Goog-Upload-Status": "active"}, b""
        if path.startswith("/upload/"):
            return {"X-Goog-Upload-Status": "final", "Content-Type": "application/json"}, json.dumps({"file": file}).encode()
        if path.endswith(":download"):
            return jsonl({"key": "row-1", "error": {"code": 4, "message": "late"}})
        if "/files" in path:
            return {"files": [file]} if method == "GET" else {}
        if path.endswith(":cancel"):
            return {}
        return {"operations": [job]} if method == "GET" and path.endswith("/batches") else job

    def drive(base, step):
        c = genai.Client(api_key=KEY, http_options={"base_url": base})
        config = {"display_name": TAG, "mime_type": "application/jsonl"}
        step("upload", "files.upload(file, config={display_name, mime_type})", lambda: c.files.upload(file=io.BytesIO(requests), config=config))
        step("create", "batches.create(model, src, config={display_name})",
             lambda: c.batches.create(model="gemini-2.5-flash", src="files/f1", config={"display_name": TAG}))
        step("find", "batches.list(page_size=100)", lambda: list(c.batches.list(config={"page_size": 100})))
        step("get", "batches.get", lambda: c.batches.get(name="batches/b1"))
        step("cancel", "batches.cancel", lambda: c.batches.cancel(name="batches/b1"))
        step("fetch", "files.download", lambda: c.files.download(file="files/batch-b1"))
        step("create_embeddings", "batches.create_embeddings(model, src={file_name}, config={display_name})",
             lambda: c.batches.create_embeddings(model="gemini-embedding-001", src={"file_name": "files/f1"}, config={"display_name": TAG}))

    raw = "https://github.com/googleapis/python-genai/blob/v3.4.0/google/genai/"
    record("gemini", "google-genai", [raw + "files.py", raw + "batches.py", raw + "_api_client.py", raw + "_transformers.py"], reply, drive)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(globals()[sys.argv[1]](*sys.argv[2:]))
    openai()
    anthropic()
    gemini()
