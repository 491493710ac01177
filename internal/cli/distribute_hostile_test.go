package cli_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// terms are what runs of these tests have.
func terms() []byte {
	t := batch.Terms{Attempts: 2, Throttles: 3, Timeout: time.Minute}
	return t.Append(nil)
}

// collect is a collector of the crew's job that may say anything.
func (c *crew) collect(settings []byte) *cluster.Collector {
	c.t.Helper()
	at, err := cluster.Open(c.t.Context(), cluster.Config{URL: c.redis, Role: "test"})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { at.Close() })
	k, err := at.Collect(c.t.Context(), cluster.JobConfig{Name: c.job(), Settings: settings})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		k.Finish(c.t.Context())
		k.Close()
	})
	return k
}

// TestAWorkerTrustsNothingThatCrosses hands a worker tasks that no collector makes.
func TestAWorkerTrustsNothingThatCrosses(t *testing.T) {
	t.Parallel()
	c := newCrew(t, 1, 16)
	var asked atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer elsewhere.Close()
	body := `{"model":"sim-small","messages":[{"role":"user","content":"What?"}],"base_url":"` + elsewhere.URL + `"}`
	good := &batch.Task{ID: "good", Number: 1, Hash: work.HashOf([]byte("x")), Model: "sim-small", Endpoint: provider.ChatCompletions, Body: []byte(body)}
	whole := string(batch.AppendTask(nil, good))
	change := func(old, by string) string {
		changed := strings.Replace(whole, old, by, 1)
		if changed == whole {
			t.Fatalf("%q is not in %q", old, whole)
		}
		return changed
	}
	refused := []string{
		"", "\x00\xff garbage", "sluice-wire 1 ", "sluice-wire 1 {}\n{}", whole[:len(whole)-1], whole + "{}",
		change("sluice-wire 1", "sluice-wire 2"),
		change("/v1/chat/completions", elsewhere.URL+"/v1/chat/completions"),
		change("/v1/chat/completions", "/v1/chat/../../admin"),
		change("/v1/chat/completions", "/v1/files"),
		change(`"input":"`, `"input":"zz`),
		change(`"line":1`, `"line":-1`), change(`"line":1`, `"line":"1; rm -rf /"`),
		change(`"good"`, `""`),
		change(`"model":"sim-small","url":"/v1/chat/completions"`, `"model":"../../admin?x=","url":"/v1beta/models/{model}:generateContent"`),
		change(`"model":"sim-small","url"`, `"model":"`+strings.Repeat("m", 10_000)+`","url"`),
		change(body, strings.Repeat("[", 1<<20)),
		change(body, `{"prompt":"`+strings.Repeat("x", batch.MaxTaskBytes)+`"}`),
		change(body, `"`+body[1:]),
	}
	k := c.collect(terms())
	for i, payload := range refused {
		if err := k.Add(t.Context(), cluster.Task{Number: int64(i), Payload: []byte(payload)}); err != nil {
			t.Fatal(err)
		}
	}
	// What else stands in a task is not looked at, and least of all where it leads.
	more := change(`{"id":`, `{"base_url":"`+elsewhere.URL+`","command":["touch","`+c.dir+`/owned"],"header":{"X":"y"},"key":"k","path":"/x","id":`)
	if err := k.Add(t.Context(), cluster.Task{Number: int64(len(refused)), Payload: []byte(more)}); err != nil {
		t.Fatal(err)
	}
	w := c.hire()
	seen := 0
	for o, err := range k.Results(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		a, err := batch.ParseAnswer(o.Payload)
		switch {
		case err != nil:
			t.Errorf("task %d: %v", o.Number, err)
		case o.Number < int64(len(refused)) && (!a.Refused || a.Kind != sluice.BadRequest || a.Message == ""):
			t.Errorf("task %d, %.60q, was answered with %+v", o.Number, refused[o.Number], a)
		case o.Number == int64(len(refused)) && (a.Refused || a.Kind != sluice.OK || a.Input != good.Hash.String()):
			t.Errorf("the task with more in it was answered with %+v", a)
		}
		k.Recorded(o.Number)
		if seen++; seen == len(refused)+1 {
			break
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("another address was called %d times", n)
	}
	if n := c.settle(); len(n) != 1 {
		t.Errorf("%d different calls were made, want the one that is good", len(n))
	}
	if n := strings.Count(w.out.String(), "rejects the task"); n != len(refused) {
		t.Errorf("the worker told of %d refusals, want %d:\n%s", n, len(refused), &w.out)
	}
}

// TestAWorkerLeavesAJobThatItDoesNotUnderstand gives a worker a job whose terms are of another version.
func TestAWorkerLeavesAJobThatItDoesNotUnderstand(t *testing.T) {
	t.Parallel()
	c := newCrew(t, 1, 16)
	k := c.collect([]byte(strings.Replace(string(terms()), " 1 ", " 2 ", 1)))
	task := &batch.Task{ID: "a", Number: 1, Model: "sim-small", Endpoint: provider.ChatCompletions, Body: []byte(`{"messages":[]}`)}
	if err := k.Add(t.Context(), cluster.Task{Payload: batch.AppendTask(nil, task)}); err != nil {
		t.Fatal(err)
	}
	out, err := c.hire().wait()
	if err == nil || !strings.Contains(out, "settings of the run") || !strings.Contains(out, "hint: ") {
		t.Errorf("the worker of that job ended with %v:\n%s", err, out)
	}
	if n := len(c.settle()); n != 0 {
		t.Errorf("%d calls were made", n)
	}
}
