//go:build unix

package cli_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/sim"
)

// clientsDir is where the official clients of other languages are installed: venv by requirements.txt and node_modules by
// package.json of testdata/clients. Those of Go come with the module of the examples.
func clientsDir(t *testing.T) string {
	suite.FullOnly(t)
	dir := os.Getenv("SLUICE_TEST_CLIENTS")
	if dir == "" {
		t.Skip("SLUICE_TEST_CLIENTS names no directory with the official clients: .ci/full installs them")
	}
	return dir
}

// clients are programs with the official clients, by their names in testdata/clients.
var clients = []string{
	"go/openai_client.go", "go/anthropic_client.go",
	"python/openai_client.py", "python/anthropic_client.py",
	"node/openai_client.mjs", "node/anthropic_client.mjs",
}

var goClients = []string{"testdata/clients/go/openai_client.go", "testdata/clients/go/anthropic_client.go"}

// beside are programs with clients that stand on those, or speak another API, and have no burst.
var beside = []string{
	"python/gemini_client.py", "python/langchain_client.py", "python/agents_client.py", "node/ai_client.mjs", "node/gemini_client.mjs",
}

// front is a gateway in front of an imitation, and what its clients have in their environment.
type front struct {
	dir      string // of the clients
	provider *sim.Server
	gateway  *gatewayProcess
	env      []string
}

// newFront starts a gateway whose clients need a key. The accounts of models whose names begin with "scarce-" have one call a
// minute. Lines are of the settings of serve.
func newFront(t *testing.T, c sim.Config, lines ...string) *front {
	f := &front{dir: clientsDir(t)}
	c.Key = "the-key-of-the-provider"
	var err error
	if f.provider, err = sim.New(c); err != nil {
		t.Fatal(err)
	}
	main, scarce := httptest.NewServer(f.provider), httptest.NewServer(f.provider)
	t.Cleanup(main.Close)
	t.Cleanup(scarce.Close)
	dir := t.TempDir()
	put(t, filepath.Join(dir, "key"), c.Key)
	key, tenant := tenantLine("sdk", "")
	put(t, filepath.Join(dir, "sluice.yaml"), fmt.Sprintf(`upstreams:
  - {name: openai, provider: openai, base_url: %[1]s/v1, key_file: key, models: [gpt-4o-mini, text-embedding-3-small]}
  - {name: anthropic, provider: anthropic, base_url: %[1]s, key_file: key, models: [claude-haiku-4-5]}
  - {name: gemini, provider: gemini, base_url: %[1]s/v1beta, key_file: key, models: [gemini-2.5-flash, gemini-embedding-001]}
  - {name: less, provider: openai, base_url: %[2]s/v1, key_file: key, models: [scarce-gpt], limits: {rpm: 1}}
  - {name: little, provider: anthropic, base_url: %[2]s, key_file: key, models: [scarce-claude], limits: {rpm: 1}, account: other}
serve:
  queue_timeout: 25s
  tenants: [%[4]s]
%[3]s`, main.URL, scarce.URL, strings.Join(lines, ""), tenant))
	f.gateway = startGateway(t, dir, "--config", "sluice.yaml")
	t.Cleanup(func() { f.gateway.stop(t) })
	f.env = append(os.Environ(), "OPENAI_BASE_URL="+f.gateway.url+"/v1", "ANTHROPIC_BASE_URL="+f.gateway.url, "GOOGLE_GEMINI_BASE_URL="+f.gateway.url)
	for _, name := range []string{"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"} {
		f.env = append(f.env, name+"="+key)
	}
	return f
}

// run runs a program with a client, and returns what it prints.
func (f *front) run(t *testing.T, path string, args ...string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var cmd *exec.Cmd
	switch filepath.Ext(path) {
	case ".go":
		cmd = exec.CommandContext(ctx, builtAt(f.dir, path), args...)
	case ".py":
		cmd = exec.CommandContext(ctx, filepath.Join(f.dir, "venv", "bin", "python"), append([]string{path}, args...)...)
	case ".mjs":
		cmd = exec.CommandContext(ctx, "node", append([]string{f.besideModules(t, path)}, args...)...)
	default:
		cmd = exec.CommandContext(ctx, "sh", path)
	}
	cmd.Env = f.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s\nthe gateway says:\n%s", filepath.Base(path), args, err, out, f.gateway.stderr)
	}
	return string(out)
}

// builtAt is where a program of Go is built.
func builtAt(dir, path string) string {
	return filepath.Join(dir, strings.TrimSuffix(filepath.Base(path), ".go"))
}

// build builds programs of Go, in the module of the examples, which has the clients. It comes before all else: a machine that is
// busy with it would delay calls, and so be refused more of them.
func build(t *testing.T, dir string, paths ...string) {
	for _, path := range paths {
		path, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("go", "build", "-o", builtAt(dir, path), path)
		cmd.Dir = filepath.Join("..", "..", "examples")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// check runs one of testdata/clients, which prints "done" at its end.
func (f *front) check(t *testing.T, name, what string) {
	if out := f.run(t, filepath.Join("testdata", "clients", name), what); !strings.HasSuffix(out, "done\n") {
		t.Errorf("%s is not done: %s", name, out)
	}
}

// besideModules is a copy of a program where node finds what it imports.
func (f *front) besideModules(t *testing.T, path string) string {
	dir := t.TempDir()
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, filepath.Base(path)), text, 0o600)
	}
	if err == nil {
		err = os.Symlink(filepath.Join(f.dir, "node_modules"), filepath.Join(dir, "node_modules"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, filepath.Base(path))
}

func TestOfficialClientsWorkUnchanged(t *testing.T) {
	build(t, clientsDir(t), goClients...)
	for _, name := range append(clients[:len(clients):len(clients)], beside...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newFront(t, sim.Config{}).check(t, name, "calls")
		})
	}
}

// Heads and comments that come before an answer do not confuse a client, and errors that come after them are errors to it.
func TestOfficialClientsUnderstandEarlyHeads(t *testing.T) {
	build(t, clientsDir(t), goClients...)
	for _, name := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sim.Config{Latency: 400 * time.Millisecond, RefusalLatency: 400 * time.Millisecond}
			newFront(t, c, "  early_200: 50ms\n").check(t, name, "early")
		})
	}
}

// No client takes an answer for whole that broke off.
func TestOfficialClientsSeeThatAnAnswerBrokeOff(t *testing.T) {
	build(t, clientsDir(t), goClients...)
	for _, name := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newFront(t, sim.Config{Faults: sim.Faults{Cut: 1}}).check(t, name, "cut")
		})
	}
}

// Every one of many calls at once succeeds, though the provider takes ten at once and five a second from then on. That nobody
// tries again proves that it is the gateway which waits.
//
// On a machine so busy that calls reach the provider more than 200 ms apart from how they were sent, more than one is refused until
// the gateway has learned that: such a burst is measured again.
func TestOfficialClientsSeeNoRefusalsOfTheProvider(t *testing.T) {
	build(t, clientsDir(t), goClients...)
	for _, name := range clients {
		for _, retries := range []string{"0", ""} {
			t.Run(name+" "+retries, func(t *testing.T) {
				t.Parallel()
				const tries = 6
				for n := 1; ; n++ {
					refused := burst(t, name, retries)
					if refused <= n { // one, and more where the machine stays busy; without a gateway some fifty are
						return
					}
					if n == tries {
						t.Fatalf("the provider refused %d calls, and more than %d the time before", refused, n-1)
					}
				}
			})
		}
	}
}

// burst makes 60 calls at once, which all succeed, and returns how many the provider refused meanwhile.
func burst(t *testing.T, name, retries string) int {
	f := newFront(t, sim.Config{RPM: 300, Burst: 2 * time.Second})
	f.env = append(f.env, "MAX_RETRIES="+retries)
	begun := time.Now()
	f.check(t, name, "burst")
	s := f.provider.Stats()
	t.Logf("%d answered, %d refused by the provider, in %.1f s", s.Answered, s.Throttled, time.Since(begun).Seconds())
	if s.Answered != 60 {
		t.Errorf("the provider answered %d", s.Answered)
	}
	return s.Throttled
}

// Each program of the page is run as it is there, and prints the texts of the simulator.
func TestProgramsOfTheClientsPageRunAsTheyAreDocumented(t *testing.T) {
	clientsDir(t)
	document := read(t, "../../docs/guides/connect-clients.md")
	n := 0
	for part := range strings.SplitSeq(document, "\n```\n") {
		_, block, _ := strings.Cut(part, "\n```") // a page's last part has none
		language, text, _ := strings.Cut(block, "\n")
		file := map[string]string{"python": "main.py", "typescript": "main.mjs"}[language]
		if file == "" {
			continue
		}
		n++
		t.Run(fmt.Sprintf("%s %d", language, n), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), file)
			put(t, path, text+"\n")
			out := newFront(t, sim.Config{}).run(t, path)
			for line := range strings.Lines(out) {
				if !strings.HasPrefix(line, "sim:") {
					t.Errorf("it prints %s", line)
				}
			}
			if want := strings.Count(text, "print(") + strings.Count(text, "console.log("); want == 0 || strings.Count(out, "\n") != want {
				t.Errorf("it prints %d lines, want %d:\n%s", strings.Count(out, "\n"), want, out)
			}
		})
	}
	if n < 2 {
		t.Errorf("%d programs, want 2", n)
	}
}
