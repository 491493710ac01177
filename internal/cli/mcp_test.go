package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sluice-llm/sluice/internal/cli"
	"github.com/sluice-llm/sluice/internal/suite"
)

// desk is a session with sluice mcp in this process, by the SDK's own client.
type desk struct {
	dir     string
	session *mcp.ClientSession
	said    bytes.Buffer // all that the server sent
}

func newDesk(t *testing.T, args ...string) *desk {
	d := &desk{dir: t.TempDir()}
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	code := make(chan int)
	var stderr bytes.Buffer
	go func() {
		code <- cli.Main(context.Background(), append([]string{"mcp", "--dir", d.dir}, args...), fromClient, toClient, &stderr)
		toClient.Close()
	}()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	var err error
	d.session, err = client.Connect(t.Context(), &mcp.IOTransport{Reader: io.NopCloser(io.TeeReader(fromServer, &d.said)), Writer: toServer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		toServer.Close()
		select {
		case got := <-code:
			if got != 0 || stderr.Len() > 0 {
				t.Errorf("exit code %d, and it says %s", got, &stderr)
			}
		case <-time.After(time.Minute):
			t.Error("it goes on after its input has ended")
		}
		fromServer.Close()
		d.session.Close()
	})
	return d
}

// answer is what a tool of sluice mcp says.
type answer struct {
	ExitCode int            `json:"exit_code"`
	Document map[string]any `json:"document"`
	Notes    []string       `json:"notes"`
}

// useTool calls a tool, and returns its answer or the text of its error.
func useTool(t *testing.T, session *mcp.ClientSession, tool string, args map[string]any) (answer, string) {
	t.Helper()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	if result.IsError {
		return answer{}, result.Content[0].(*mcp.TextContent).Text
	}
	text, err := json.Marshal(result.StructuredContent)
	var a answer
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a, ""
}

func TestAgentsAskWhatCommandsKnow(t *testing.T) {
	const key = "sk-proj-0123456789abcdefghijklmnop"
	t.Setenv("OPENAI_API_KEY", key)
	d := newDesk(t)
	put(t, filepath.Join(d.dir, "in.jsonl"), strings.Repeat(`{"model":"sim-small","messages":[{"role":"user","content":"Why is the sky blue?"}]}`+"\n", 20))

	a, failure := useTool(t, d.session, "plan", map[string]any{"rpm": 600, "latency": "500ms", "requests": 1000000, "output_tokens": 0, "safety": 0.5})
	if failure != "" || a.ExitCode != 0 || a.Document["slots"] != 12.0 || a.Document["safety"] != 0.5 || a.Document["throughput_rpm"] != 600.0 {
		t.Errorf("plan: %v %s", a, failure)
	}
	if w := a.Document["workload"].(map[string]any); w["requests"] != 1e6 || w["output_tokens"] != 0.0 {
		t.Errorf("plan: the workload is %v", w)
	}
	a, failure = useTool(t, d.session, "plan", map[string]any{"rate_limit": []string{"tpd=1000000", "burst=1s"}, "requests": 1000})
	if limits, _ := a.Document["limits"].(map[string]any); failure != "" || limits["tpd"] == nil || limits["burst_seconds"] == nil {
		t.Errorf("plan of a day's tokens: %v %s", a, failure)
	}
	a, failure = useTool(t, d.session, "plan", map[string]any{"rpm": 60, "requests": 1000, "deadline": "1m"})
	if failure != "" || a.ExitCode != 4 || len(a.Notes) == 0 {
		t.Errorf("plan with a deadline that cannot be kept: %v %s", a, failure)
	}
	a, failure = useTool(t, d.session, "plan", map[string]any{"rpm": 600, "workload": "in.jsonl", "model": "sim-small"})
	if failure != "" || a.Document["workload"].(map[string]any)["requests"] != 20.0 {
		t.Errorf("plan of a file: %v %s", a, failure)
	}

	a, failure = useTool(t, d.session, "find", map[string]any{"model": "gpt-4o-mini", "token_budget": 5000})
	if failure != "" || a.Document["dry_run"] != true || a.Document["token_budget"] != 5000.0 {
		t.Errorf("find: %v %s", a, failure)
	}
	a, failure = useTool(t, d.session, "find", map[string]any{"model": "gpt-4o-mini", "max_cost": 0.5, "price_in": 0.15, "price_out": 0.6})
	if most, _ := a.Document["most"].(map[string]any); failure != "" || most["cost_usd"] == nil {
		t.Errorf("find with prices: %v %s", a, failure)
	}

	a, failure = useTool(t, d.session, "explain", map[string]any{"text": "slow down", "status": 429, "header": []string{"retry-after: 20"}})
	if failure != "" || a.Document["kind"] != "rate_limit" || a.Document["retry_after_s"] != 20.0 {
		t.Errorf("explain: %v %s", a, failure)
	}

	out := filepath.Join(d.dir, "out.jsonl")
	if code := cli.Main(t.Context(), []string{"run", "--provider", "sim", filepath.Join(d.dir, "in.jsonl"), "-o", out}, strings.NewReader(""), io.Discard, io.Discard); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	a, failure = useTool(t, d.session, "status", map[string]any{"path": "out.jsonl"})
	if state, ok := a.Document["state"].(map[string]any); failure != "" || !ok || a.Document["alive"] != false || state["done"] != 20.0 {
		t.Errorf("status: %v %s", a, failure)
	}
	a, failure = useTool(t, d.session, "status", map[string]any{"path": "."})
	if runs, _ := a.Document["runs"].([]any); failure != "" || len(runs) != 1 {
		t.Errorf("status of a directory: %v %s", a, failure)
	}
	if strings.Contains(d.said.String(), key) || strings.Contains(d.said.String(), key[8:]) {
		t.Error("it says the key")
	}
}

func TestAgentsLearnWhatTheyAskedForWrongly(t *testing.T) {
	d := newDesk(t, "--probe-tokens", "1000")
	other := t.TempDir()
	put(t, filepath.Join(other, "secret.jsonl"), `{"prompt":"of somebody else"}`+"\n")
	put(t, filepath.Join(other, "out.jsonl.state.json"), `{"secret":1}`)
	if err := os.Symlink(filepath.Join(other, "secret.jsonl"), filepath.Join(d.dir, "link.jsonl")); err != nil {
		t.Skip("no links here")
	}
	if err := os.Symlink(filepath.Join(other, "out.jsonl.state.json"), filepath.Join(d.dir, "out.jsonl.state.json")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, tool string
		args       map[string]any
		want       string
	}{
		{"a wrong value", "plan", map[string]any{"rpm": -1}, "--rpm -1 is below zero"},
		{"a wrong type", "plan", map[string]any{"rpm": "many"}, "validating"},
		{"an argument that there is not", "plan", map[string]any{"config": "/etc/passwd"}, "config"},
		{"a flag as a value", "explain", map[string]any{"text": "x", "provider": "--help"}, "--help"},
		{"no model", "find", map[string]any{}, "model"},
		{"a probe without a budget", "find", map[string]any{"model": "sim-small", "provider": "sim", "probe": true}, "token_budget of at least 1"},
		{"a probe without end", "find", map[string]any{"model": "sim-small", "provider": "sim", "probe": true, "token_budget": -1}, "token_budget of at least 1"},
		{"a probe above what is allowed", "find", map[string]any{"model": "sim-small", "provider": "sim", "probe": true, "token_budget": 1001}, "above 1000"},
		{"a file elsewhere", "plan", map[string]any{"rpm": 60, "workload": filepath.Join(other, "secret.jsonl")}, "is not below"},
		{"a file above", "plan", map[string]any{"rpm": 60, "workload": "../x"}, "is not below"},
		{"a link to elsewhere", "plan", map[string]any{"rpm": 60, "workload": "link.jsonl"}, "is not below"},
		{"a state that is a link", "status", map[string]any{"path": "out.jsonl"}, "is not below"},
		{"a run elsewhere", "status", map[string]any{"path": "/"}, "is not below"},
		{"no such run", "status", map[string]any{"path": "none.jsonl"}, "none.jsonl"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if a, failure := useTool(t, d.session, tt.tool, tt.args); !strings.Contains(failure, tt.want) {
				t.Errorf("it says %q and answers %v, want %q", failure, a, tt.want)
			}
		})
	}
}

func TestAgentsProbeOnlyWhereTheyMay(t *testing.T) {
	t.Parallel() // it mostly waits
	ask := map[string]any{"model": "sim-small", "provider": "sim", "probe": true, "token_budget": 3000}
	if _, failure := useTool(t, newDesk(t).session, "find", ask); !strings.Contains(failure, "--probe-tokens") {
		t.Errorf("it says %q", failure)
	}
	a, failure := useTool(t, newDesk(t, "--probe-tokens", "3000").session, "find", ask)
	if spent, ok := a.Document["spent"].(map[string]any); failure != "" || !ok || spent["calls"] == 0.0 {
		t.Errorf("it says %q and answers %v", failure, a)
	}
}

func TestSearchesShareWhatMayBeSpent(t *testing.T) {
	t.Parallel() // it mostly waits
	d := newDesk(t, "--probe-tokens", "3000")
	ask := map[string]any{"model": "sim-small", "provider": "sim", "probe": true, "token_budget": 3000}
	if _, failure := useTool(t, d.session, "find", map[string]any{"model": "sim-small", "provider": "sim", "probe": true, "token_budget": 3000, "price_in": -1}); !strings.Contains(failure, "--price-in") {
		t.Errorf("a search that does not begin: it says %q", failure)
	}
	a, failure := useTool(t, d.session, "find", ask)
	spent, ok := a.Document["spent"].(map[string]any)
	if !ok {
		t.Fatalf("it says %q and answers %v", failure, a)
	}
	left := 3000 - spent["input_tokens"].(float64) - spent["output_tokens"].(float64)
	want := fmt.Sprintf("above %.0f, which is left of the 3000", left)
	if a, failure := useTool(t, d.session, "find", ask); left == 3000 || !strings.Contains(failure, want) {
		t.Errorf("the second says %q and answers %v, want %q", failure, a, want)
	}
}

func TestAgentsReadNothingByWayOfARun(t *testing.T) {
	other := t.TempDir()
	const state = `{"version":1,"status":"completed","pid":1,"reason":"of somebody else","updated_at":"2026-01-01T00:00:00Z"}`
	put(t, filepath.Join(other, "x.json"), state)
	for _, tt := range []struct {
		name, link, ask string
	}{
		{"a backup of its state", "out.jsonl.state.json.bak", "out.jsonl"},
		{"a run of a directory", "runs/out.jsonl.state.json", "runs"},
		{"a directory of exec in a directory", "runs/one/state.json", "runs"},
		{"its output", "out.jsonl", "out.jsonl"},
		{"its journal", "out.jsonl.journal", "out.jsonl"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDesk(t)
			link := filepath.Join(d.dir, filepath.FromSlash(tt.link))
			if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(tt.link, "runs") {
				put(t, filepath.Join(d.dir, "out.jsonl.state.json"), "damaged")
			}
			if err := os.Symlink(filepath.Join(other, "x.json"), link); err != nil {
				t.Skip("no links here")
			}
			if a, failure := useTool(t, d.session, "status", map[string]any{"path": tt.ask}); !strings.Contains(failure, "is not below") {
				t.Errorf("it says %q and answers %v", failure, a)
			}
		})
	}
}

func TestTheToolsAreDescribed(t *testing.T) {
	suite.FullOnly(t)
	d, document := newDesk(t), read(t, "../../docs/mcp.md")
	list, err := d.session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
		if tool.Description == "" || tool.OutputSchema == nil || tool.Annotations.ReadOnlyHint == (tool.Name == "find") {
			t.Errorf("%s is described as %+v", tool.Name, tool)
		}
		properties := tool.InputSchema.(map[string]any)["properties"].(map[string]any)
		for name, about := range properties {
			if about.(map[string]any)["description"] == "" {
				t.Errorf("%s: %s is not described", tool.Name, name)
			}
		}
		var said []string
		if row := regexp.MustCompile("(?m)^\\| `" + tool.Name + "` \\|.*\\|(.*)\\|$").FindStringSubmatch(document); row != nil {
			for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
				said = append(said, m[1])
			}
		}
		if slices.Sort(said); !slices.Equal(said, slices.Sorted(maps.Keys(properties))) {
			t.Errorf("docs/mcp.md has the arguments %v of %s, which takes %v", said, tool.Name, slices.Sorted(maps.Keys(properties)))
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"explain", "find", "plan", "status"}) {
		t.Errorf("tools are %v", names)
	}
}

func TestAgentsStartTheCommand(t *testing.T) {
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	cmd := exec.Command("sluice", "mcp")
	cmd.Dir = t.TempDir()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a, failure := useTool(t, session, "plan", map[string]any{"rpm": 600, "latency": "500ms"}); failure != "" || a.Document["slots"] != 12.0 {
		t.Errorf("plan: %v %s", a, failure)
	}
	if err := session.Close(); err != nil || stderr.Len() > 0 {
		t.Errorf("it ended with %v, and says %s", err, &stderr)
	}
}

// read returns the text of a file.
func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// put replaces a file as editors do.
func put(t *testing.T, path, text string) {
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
