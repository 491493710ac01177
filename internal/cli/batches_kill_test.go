package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/sim"
)

// batchForm is a form of Batch API, at a provider that has it.
type batchForm struct {
	name, base, key string // of the provider: its name, the path of its base URL and the variable of its key
	line            string // a request with %d twice: of its custom_id and its question
}

// batchForms are all forms.
func batchForms() []batchForm {
	return []batchForm{
		{"openai", "/v1", "OPENAI_API_KEY", `{"custom_id":"p%d","method":"POST","url":"/v1/chat/completions",` +
			`"body":{"model":"sim-small","messages":[{"role":"user","content":"Prompt number %d"}]}}`},
		{"anthropic", "", "ANTHROPIC_API_KEY", `{"custom_id":"p%d","method":"POST","url":"/v1/messages","body":{"model":"claude-haiku-4-5",` +
			`"max_tokens":20,"messages":[{"role":"user","content":"Prompt number %d"}]}}`},
		{"gemini", "/v1beta", "GEMINI_API_KEY", `{"custom_id":"p%d","method":"POST","url":"/v1beta/models/gemini-2.5-flash:generateContent",` +
			`"body":{"contents":[{"role":"user","parts":[{"text":"Prompt number %d"}]}]}}`},
	}
}

// lines are so many requests.
func (f batchForm) lines(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, f.line+"\n", i, i)
	}
	return b.Bytes()
}

// batchInstant is when a run is killed: at a call to the Batch API, before the provider hears of it or after it did and before its
// answer is sent, and then so much later.
type batchInstant struct {
	call  string // upload, create, find, look, fetch
	after bool
	nth   int // of these calls, in the life of the process
	later time.Duration
}

func (i batchInstant) String() string {
	when := "before"
	if i.after {
		when = "after"
	}
	return fmt.Sprintf("%s %s %d, and %s", when, i.call, i.nth, i.later)
}

// TestBatchKill kills a run by way of a Batch API at instants of submitting, looking, fetching and recording, and starts the same
// command again each time: nothing is handed over twice, and nothing is lost. With 20 instants:
//
//	go test ./internal/cli -run '^$' -bench BatchKills -benchtime 1x -v
func TestBatchKill(t *testing.T) {
	suite.FullOnly(t)
	t.Parallel() // it mostly waits
	for _, form := range batchForms() {
		t.Run(form.name, func(t *testing.T) {
			if form.name != "openai" {
				suite.FullOnly(t)
			}
			t.Parallel()
			instants := []batchInstant{
				{call: "create", after: true, nth: 2},
				{call: "look", after: true, nth: 3, later: 5 * time.Millisecond},
				{call: "fetch", after: true, nth: 1, later: 10 * time.Millisecond},
			}
			if suite.Full { // it takes half a minute to make sure that a batch was not made
				instants = append(instants, batchInstant{call: form.submits(), after: true, nth: 2}, batchInstant{call: "create", nth: 1})
			}
			batchKills(t, form, instants)
		})
	}
}

// submits is the first call of those that submit a batch.
func (f batchForm) submits() string {
	if f.name == "anthropic" {
		return "create"
	}
	return "upload"
}

// batchKills kills a run at each of the instants, and then lets it end. Where batches bear no names, others make batches of as many
// requests at the same account all the while.
func batchKills(t testing.TB, form batchForm, instants []batchInstant) {
	const each = 10
	lines := suite.Size(20, 60)*each + 60*each*len(instants)/2 // so that there is something left to do at the last of them
	v := newBatchBench(t, form, sim.Batches{Latency: 300 * time.Millisecond, EnqueuedTokens: 8 * each * 200}, lines)
	v.bound(each)
	for _, instant := range instants {
		cmd := v.start()
		v.arm(instant, cmd)
		if form.name == "anthropic" {
			v.foreign(each)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case <-done:
		case <-time.After(2 * time.Minute):
			cmd.Process.Kill()
			t.Fatalf("%s: the run did not come to it:\n%s", instant, cmd.out.String())
		}
		if !v.fired() {
			t.Errorf("%s: the run ended before: %s", instant, cmd.out.String())
		}
		stats := v.server.Stats().Batches
		t.Logf("%s: %d batches, %d lines run, %d twice, %d recorded", instant, stats.Batches, stats.Answered, stats.Repeated, len(v.recorded()))
	}
	cmd := v.start()
	if out, err := cmd.wait(); err != nil {
		t.Fatalf("last run: %v\n%s", err, out)
	}
	v.judge(lines)
	if b := v.server.Stats().Batches; b.Batches != lines/each+v.others {
		t.Errorf("%d batches were made, %d of them by others, want %d of ours", b.Batches, v.others, lines/each)
	}
}

// batchBench is a simulated Batch API in this process, and runs in other processes that use it.
type batchBench struct {
	testing.TB
	form      batchForm
	dir       string
	in        string
	out       string
	args      []string
	server    *sim.Server
	web       *httptest.Server
	others    int // batches that others made
	strangers int // and their lines

	mu      sync.Mutex
	instant batchInstant
	seen    map[string]int // calls in the life of the process
	victim  *run           // nil: nobody is to be killed
	hit     bool
}

func newBatchBench(t testing.TB, form batchForm, b sim.Batches, lines int) *batchBench {
	t.Helper()
	dir, err := os.MkdirTemp(os.Getenv("SLUICE_TEST_ROOT"), "batch-")
	if err != nil {
		t.Fatal(err)
	}
	v := &batchBench{TB: t, form: form, dir: dir, in: filepath.Join(dir, "in.jsonl"), out: filepath.Join(dir, "out.jsonl")}
	if err := os.WriteFile(v.in, form.lines(lines), 0o644); err != nil {
		t.Fatal(err)
	}
	if v.server, err = sim.New(sim.Config{Key: sentinelKey, Batches: b, OutputTokens: 20, Latency: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	v.web = httptest.NewServer(v)
	t.Cleanup(func() {
		v.web.CloseClientConnections()
		v.web.Close()
	})
	return v
}

// ServeHTTP serves the imitation, and kills the run when it is its time.
func (v *batchBench) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := batchCall(r)
	v.count(call)
	if v.strike(call, false) {
		panic(http.ErrAbortHandler) // the provider never heard of it
	}
	answer := httptest.NewRecorder()
	v.server.ServeHTTP(answer, r)
	v.strike(call, true)
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	w.Write(answer.Body.Bytes())
}

// batchCall names a call.
func batchCall(r *http.Request) string {
	path, post := r.URL.Path, r.Method == http.MethodPost
	listed := strings.HasSuffix(path, "/batches")
	switch {
	case strings.HasSuffix(path, "/content"), strings.HasSuffix(path, "/results"), strings.HasSuffix(path, ":download"):
		return "fetch"
	case strings.Contains(path, "/files"):
		if post {
			return "upload"
		}
		return "other"
	case post && (listed || strings.HasSuffix(path, ":batchGenerateContent")):
		return "create"
	case listed:
		return "find"
	case strings.Contains(path, "/batches/"):
		return "look"
	}
	return "other"
}

// foreign has somebody else make a batch of so many requests at the account.
func (v *batchBench) foreign(requests int) {
	v.Helper()
	v.others++
	var all []string
	for i := range requests {
		v.strangers++
		all = append(all, fmt.Sprintf(`{"custom_id":"p%d","params":{"model":"claude-haiku-4-5","max_tokens":20,"messages":[{"role":"user","content":"Foreign %d"}]}}`,
			i, v.strangers))
	}
	r := httptest.NewRequest(http.MethodPost, v.web.URL+"/v1/messages/batches", strings.NewReader(`{"requests":[`+strings.Join(all, ",")+`]}`))
	r.Header.Set("Anthropic-Version", "2023-06-01")
	r.Header.Set("X-Api-Key", sentinelKey)
	answer := httptest.NewRecorder()
	if v.server.ServeHTTP(answer, r); answer.Code != http.StatusOK {
		v.Errorf("a foreign batch is not taken: %s", answer.Body)
	}
}

// arm has a run killed at an instant.
func (v *batchBench) arm(i batchInstant, cmd *run) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.instant, v.victim, v.hit, v.seen = i, cmd, false, make(map[string]int)
}

func (v *batchBench) fired() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.hit
}

func (v *batchBench) count(call string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.victim != nil {
		v.seen[call]++
	}
}

// strike kills the run if it is the instant, and says whether that was at once.
func (v *batchBench) strike(call string, after bool) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.victim == nil || v.hit || call != v.instant.call || after != v.instant.after || v.seen[call] < v.instant.nth {
		return false
	}
	v.hit = true
	victim := v.victim
	if v.instant.later == 0 {
		victim.Process.Kill()
		return true
	}
	time.AfterFunc(v.instant.later, func() { victim.Process.Kill() })
	return false
}

// bound has batches of at most that many requests.
func (v *batchBench) bound(requests int) {
	v.Helper()
	path := filepath.Join(v.dir, "bound.yaml")
	text := fmt.Sprintf("providers: [{name: %s, batches: {requests: %d}}]\n", v.form.name, requests)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		v.Fatal(err)
	}
	v.args = append(v.args, "--config", path)
}

// start runs the command, always the same.
func (v *batchBench) start() *run {
	v.Helper()
	args := append([]string{"run", "--provider", v.form.name, "--base-url", v.web.URL + v.form.base, "--batch", v.in, "-o", v.out}, v.args...)
	return launch(v, v.dir, v.form.key, args...)
}

// recorded counts the results of each custom_id.
func (v *batchBench) recorded() map[string]int {
	v.Helper()
	b, err := os.ReadFile(v.out)
	if err != nil && !os.IsNotExist(err) {
		v.Fatal(err)
	}
	ids := make(map[string]int)
	for line := range bytes.Lines(b) {
		var result struct {
			ID string `json:"custom_id"`
		}
		if bytes.HasSuffix(line, []byte("\n")) && json.Unmarshal(line, &result) == nil {
			ids[result.ID]++
		}
	}
	return ids
}

// judge compares the output, and what the imitation was paid for, with an input of so many lines.
func (v *batchBench) judge(lines int) {
	v.Helper()
	ids := v.recorded()
	for i := range lines {
		if n := ids[fmt.Sprintf("p%d", i)]; n != 1 {
			v.Errorf("line p%d has %d results", i, n)
		}
	}
	if len(ids) != lines {
		v.Errorf("%d ids are recorded, want %d", len(ids), lines)
	}
	v.paidOnce(lines)
	if left, err := filepath.Glob(v.out + ".batches/*.jsonl"); err != nil || len(left) > 0 {
		v.Errorf("files of requests are left: %v", left)
	}
}

// paidOnce wants so many lines to have been answered, each once: under whatever custom_id, of which Anthropic's differ by part.
func (v *batchBench) paidOnce(lines int) {
	v.Helper()
	stats := v.server.Stats()
	for hash, n := range stats.Paid {
		if n != 1 {
			v.Errorf("request %s was paid for %d times", hash, n)
		}
	}
	if n := len(stats.Paid) - v.strangers; n != lines || stats.Batches.Repeated != 0 || stats.Answered != 0 {
		v.Errorf("%d lines were paid for, %d of them twice, and %d live, want %d", n, stats.Batches.Repeated, stats.Answered, lines)
	}
}

// batchInstants are instants spread over all that a run of a form does.
func batchInstants(form batchForm, n int) []batchInstant {
	luck := rand.New(rand.NewPCG(1, 2))
	kinds := []batchInstant{
		{call: form.submits()}, {call: form.submits(), after: true}, {call: "create"}, {call: "create", after: true}, {call: "look"},
		{call: "look", after: true}, {call: "fetch"}, {call: "fetch", after: true},
	}
	all := make([]batchInstant, n)
	for i := range all {
		all[i] = kinds[i%len(kinds)]
		all[i].nth = 1 + luck.IntN(2)
		if i >= len(kinds) { // the second time round, somewhat later: results are merged then
			all[i].later = time.Duration(1+luck.IntN(20)) * time.Millisecond
		}
	}
	return all
}
