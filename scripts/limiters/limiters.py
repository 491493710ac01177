#!/usr/bin/env python3
"""Measures sluice run against real rate limiters, and the openai SDK beside it.

    scripts/limiters/limiters.py DIR SLUICE [--runs N] [--stated] [--serve] [--sdk] [ROW ...]

DIR keeps what is installed: npm and pip packages, and the binary of the Go servers. nginx and haproxy are those of the system.
Each row is a limiter with its law: a back end with 300 ms latency behind it, and the least time in which its requests can be served.
The time of a run is from the first request to the last response at the back end. A run with failed items has no ratio.
"""
import argparse, asyncio, contextlib, json, os, pathlib, re, shutil, socket, statistics, subprocess, sys, tempfile, time

HERE = pathlib.Path(__file__).resolve().parent
LATENCY = 0.3


def bucket(n, rate, burst):
    return (n - burst) / rate + LATENCY


def window(n, size, seconds):
    return (-(-n // size) - 1) * seconds + LATENCY


def sliding(n, size, seconds):
    """Two windows that are weighed: what is sent at once counts for the whole next window."""
    return n / size * seconds + LATENCY


def concurrent(n, at_once):
    return -(-n // at_once) * LATENCY


# name: (server, its parameters, requests, optimum, flags that state the limit)
ROWS = {
    "nginx-rate": ("nginx", "limit_req zone=rate burst=60 nodelay;", 360, bucket(360, 15, 61), "--rpm 900 --rate-limit burst=4s"),
    "nginx-conn": ("nginx", "limit_conn open 8;", 400, concurrent(400, 8), "--concurrency 8"),
    "nginx-rate-503": ("nginx", "limit_req zone=rate burst=60 nodelay; limit_req_status 503;", 360, bucket(360, 15, 61), "--rpm 900 --rate-limit burst=4s"),
    "nginx-conn-503": ("nginx", "limit_conn open 8; limit_conn_status 503;", 400, concurrent(400, 8), "--concurrency 8"),
    "haproxy": ("haproxy", "", 300, sliding(300, 150, 10), "--rate-limit requests=150/10s"),
    "envoy-rate": ("envoy", "rate", 400, bucket(400, 20, 60), "--rpm 1200 --rate-limit burst=3s"),
    "envoy-breaker": ("envoy", "breaker", 400, concurrent(400, 8), "--concurrency 8"),
    "traefik": ("traefik", "", 400, bucket(400, 20, 60), "--rpm 1200 --rate-limit burst=3s"),
    "express": ("node", "legacy", 300, window(300, 100, 10), "--rate-limit requests=100/10s"),
    "express-draft-6": ("node", "draft-6", 300, window(300, 100, 10), "--rate-limit requests=100/10s"),
    "express-draft-7": ("node", "draft-7", 300, window(300, 100, 10), "--rate-limit requests=100/10s"),
    "express-draft-8": ("node", "draft-8", 300, window(300, 100, 10), "--rate-limit requests=100/10s"),
    "express-bare": ("node", "bare", 300, window(300, 100, 10), "--rate-limit requests=100/10s"),
    "ulule": ("go", "ulule", 300, window(300, 100, 10), "--rate-limit requests=100/10s"),
    "httprate": ("go", "httprate", 200, sliding(200, 100, 10) - 1, "--rate-limit requests=100/10s"), # its windows begin with the server, a second before
    "go-rate": ("go", "rate", 400, bucket(400, 20, 60), "--rpm 1200 --rate-limit burst=3s"),
    "slowapi": ("python", "", 300, window(300, 100, 10), "--rate-limit requests=100/10s"),
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


ANSWER = json.dumps({"id": "c", "object": "chat.completion", "created": 1, "model": "m",
                     "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
                     "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}}).encode()


class Backend:
    """An HTTP server that answers after LATENCY. All servers forward to it, so that it knows when requests came and ended."""

    def __init__(self):
        self.first = self.last = None
        self.served = 0

    async def serve(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: *(\d+)", head)
                if length:
                    await reader.readexactly(int(length[1]))
                elif re.search(rb"(?i)transfer-encoding: *chunked", head):
                    while (await reader.readuntil(b"\r\n")) != b"0\r\n":
                        await reader.readuntil(b"\r\n")
                    await reader.readuntil(b"\r\n")
                self.first = self.first or time.monotonic()
                await asyncio.sleep(LATENCY)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER))
                await writer.drain()
                self.last, self.served = time.monotonic(), self.served + 1
        writer.close()


NGINX = """daemon off; error_log /dev/null; pid {dir}/pid; events {{ worker_connections 4096; }}
http {{ access_log off; client_body_temp_path {dir}; proxy_temp_path {dir}; fastcgi_temp_path {dir}; uwsgi_temp_path {dir}; scgi_temp_path {dir};
 limit_req_zone $server_name zone=rate:1m rate=15r/s; limit_conn_zone $server_name zone=open:1m;
 limit_req_status 429; limit_conn_status 429;
 upstream back {{ server 127.0.0.1:{back}; keepalive 256; }}
 server {{ server_name all; listen 127.0.0.1:{port}; location / {{ {extra} proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://back; }} }} }}
"""

HAPROXY = """defaults
 mode http
 timeout connect 5s
 timeout client 60s
 timeout server 60s
frontend in
 bind 127.0.0.1:{port}
 stick-table type ip size 1k expire 60s store http_req_rate(10s)
 http-request track-sc0 src
 http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt 150 }}
 default_backend back
backend back
 server s 127.0.0.1:{back}
"""

ENVOY = """static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: hcm
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          route_config: {{virtual_hosts: [{{name: all, domains: ["*"], routes: [{{match: {{prefix: "/"}}, route: {{cluster: back, timeout: 60s}}}}]}}]}}
          http_filters:
{filter}          - name: router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: back
    connect_timeout: 5s
    type: STATIC
    load_assignment: {{cluster_name: back, endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {back}}}}}}}}}]}}]}}
{cluster}
"""
ENVOY_RATE = """          - name: limit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
              stat_prefix: limit
              token_bucket: {max_tokens: 60, tokens_per_fill: 1, fill_interval: 0.05s}
              filter_enabled: {default_value: {numerator: 100}}
              filter_enforced: {default_value: {numerator: 100}}
              enable_x_ratelimit_headers: DRAFT_VERSION_03
"""
ENVOY_BREAKER = "    circuit_breakers: {thresholds: [{max_requests: 8, max_pending_requests: 8, max_connections: 1000}]}\n"

TRAEFIK = """http:
  routers: {{all: {{rule: "PathPrefix(`/`)", service: back, middlewares: [limit]}}}}
  middlewares: {{limit: {{rateLimit: {{average: 20, burst: 60}}}}}}
  services: {{back: {{loadBalancer: {{servers: [{{url: "http://127.0.0.1:{back}"}}]}}}}}}
"""


def command(server, extra, dir, tools, port, back):
    """Writes a server's configuration and returns its command."""
    def write(name, text):
        path = dir / name
        path.write_text(text)
        return str(path)
    if server == "nginx":
        return ["nginx", "-e", "/dev/null", "-c", write("nginx.conf", NGINX.format(dir=dir, port=port, back=back, extra=extra))]
    if server == "haproxy":
        return ["haproxy", "-q", "-f", write("haproxy.cfg", HAPROXY.format(port=port, back=back))]
    if server == "envoy":
        text = ENVOY.format(port=port, back=back, filter=ENVOY_RATE if extra == "rate" else "", cluster=ENVOY_BREAKER if extra == "breaker" else "")
        return [tools / "venv/bin/envoy", "--concurrency", "1", "-l", "off", "--disable-hot-restart", "-c", write("envoy.yaml", text)]
    if server == "traefik":
        dynamic = write("dynamic.yaml", TRAEFIK.format(back=back))
        return [tools / "venv/bin/traefik", f"--entrypoints.web.address=127.0.0.1:{port}", f"--providers.file.filename={dynamic}", "--log.level=FATAL"]
    if server == "node":
        return ["node", tools / "node/express.js", str(port), str(back), extra]
    if server == "go":
        return [tools / "limiters", str(port), str(back), extra]
    return [tools / "venv/bin/python", HERE / "slow.py", str(port), str(back)]


def install(tools, servers):
    tools.mkdir(parents=True, exist_ok=True)
    run = lambda *a, **k: subprocess.run(a, check=True, stdout=subprocess.DEVNULL, **k)
    if not (tools / "venv/done").exists():
        run(sys.executable, "-m", "venv", tools / "venv")
        run(tools / "venv/bin/pip", "install", "-q", "-r", HERE / "requirements.txt")
        (tools / "venv/done").touch()
    if "node" in servers and not (tools / "node/node_modules").exists():
        shutil.copytree(HERE / "node", tools / "node", dirs_exist_ok=True)
        run("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", cwd=tools / "node")
    if "go" in servers:
        run("go", "build", "-o", tools / "limiters", ".", cwd=HERE / "go")


async def until_open(port):
    for _ in range(600):
        with contextlib.suppress(OSError):
            _, w = await asyncio.open_connection("127.0.0.1", port)
            w.close()
            return
        await asyncio.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}")


async def measure(row, tools, client):
    """Runs a client once against a fresh limiter: time ÷ optimum, rejections, failed items."""
    server, extra, n, optimum, _ = ROWS[row]
    backend = Backend()
    listener = await asyncio.start_server(backend.serve, "127.0.0.1", 0, backlog=1024, limit=1 << 20)
    back, port = listener.sockets[0].getsockname()[1], free_port()
    with tempfile.TemporaryDirectory() as dir:
        dir = pathlib.Path(dir)
        os.chmod(dir, 0o755)
        process = subprocess.Popen([str(w) for w in command(server, extra, dir, tools, port, back)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            await until_open(port)
            await asyncio.sleep(1)
            begun = time.monotonic()
            try:
                rejected, failed = await asyncio.wait_for(client(f"http://127.0.0.1:{port}/v1", n, dir), 8 * optimum)
            except asyncio.TimeoutError:
                rejected, failed = -1, n - backend.served
            took = (backend.last or begun) - (backend.first or begun)
        finally:
            process.terminate()
            process.wait()
            listener.close()
    return took / optimum, rejected, failed


def sluice(binary, flags):
    async def client(url, n, dir):
        items = dir / "in.jsonl"
        items.write_text("".join(json.dumps({"custom_id": f"r{i}", "prompt": f"Say {i}"}) + "\n" for i in range(n)))
        keep = os.environ.get("LIMITERS_EVENTS")
        extra = ["--events", keep] if keep else []
        p = await asyncio.create_subprocess_exec(
            binary, "run", str(items), "-o", str(dir / "out.jsonl"), "--provider", "openai-compatible", "--base-url", url, "--model", "m", "--json",
            "--progress", "none", *flags.split(), *extra, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "OPENAI_API_KEY": "sk-none", "XDG_STATE_HOME": str(dir / "state"), "HOME": str(dir)})
        try:
            out, err = await p.communicate()
        except asyncio.CancelledError:
            p.kill()
            raise
        try:
            summary = json.loads(out)
        except ValueError:
            raise SystemExit(f"sluice prints no summary: {err.decode()}")
        return summary["throttles"], n - summary["done"]
    return client


def gateway(tools, binary):
    """20 clients of the SDK without retries, behind sluice serve."""
    async def client(url, n, dir):
        port = free_port()
        p = await asyncio.create_subprocess_exec(
            binary, "serve", "--listen", f"127.0.0.1:{port}", "--metrics", "127.0.0.1:0", "--provider", "openai-compatible",
            "--base-url", url, env={**os.environ, "OPENAI_API_KEY": "sk-none", "XDG_STATE_HOME": str(dir / "state"), "HOME": str(dir)})
        try:
            await until_open(port)
            return await sdk(tools, 0, 20)(f"http://127.0.0.1:{port}/v1", n, dir)
        finally:
            p.terminate()
            await p.wait()
    return client


def sdk(tools, retries, at_once):
    async def client(url, n, dir):
        p = await asyncio.create_subprocess_exec(str(tools / "venv/bin/python"), str(HERE / "sdk.py"), url, str(n), str(retries), str(at_once), stdout=subprocess.PIPE)
        try:
            out, _ = await p.communicate()
        except asyncio.CancelledError:
            p.kill()
            raise
        return tuple(json.loads(out))
    return client


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("sluice")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=" ".join(ROWS))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--sdk", action="store_true", help="the SDK with 2 and with 10 retries, 20 requests at once")
    parser.add_argument("--stated", action="store_true", help="also with the limit configured")
    parser.add_argument("--serve", action="store_true", help="20 clients of the SDK without retries, behind sluice serve")
    args = parser.parse_intermixed_args()
    rows, tools = args.rows or list(ROWS), args.dir.resolve()
    if unknown := set(rows) - set(ROWS):
        parser.error(f"no such row: {' '.join(unknown)}")
    install(tools, {ROWS[r][0] for r in rows})
    print(f"{'limiter':16} {'optimum':>8}  client: time ÷ optimum, rejections, failed; medians of {args.runs}")
    failed = False
    for row in rows:
        clients = {"sluice": sluice(args.sluice, "")}
        if args.stated:
            clients["stated"] = sluice(args.sluice, ROWS[row][4])
        if args.serve:
            clients["serve"] = gateway(tools, args.sluice)
        if args.sdk:
            clients |= {"sdk 2": sdk(tools, 2, 20), "sdk 10": sdk(tools, 10, 20)}
        cells = []
        for name, client in clients.items():
            results = [await measure(row, tools, client) for _ in range(args.runs)]
            ratio, rejected, lost = (statistics.median(r[i] for r in results) for i in range(3))
            worst = max(r[2] for r in results)
            failed |= worst > 0 and not name.startswith("sdk")
            cells.append(f"{name} {ratio:.2f}, {rejected:.0f}, {worst}" if not worst else f"{name} –, {rejected:.0f}, {worst} failed")
        print(f"{row:16} {ROWS[row][3]:6.1f} s  {'; '.join(cells)}", flush=True)
    sys.exit(failed)


asyncio.run(main())
