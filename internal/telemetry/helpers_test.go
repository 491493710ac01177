package telemetry_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// observed is a run that was watched in every way.
type observed struct {
	live     telemetry.Aggregate // as it happened
	events   []byte              // the file of events
	output   []byte              // the results
	snapshot sluice.Snapshot     // of the Scheduler, at the end
	report   batch.Report
}

// everybody tells several Observers.
type everybody []sluice.Observer

func (all everybody) Observe(e sluice.Event) {
	for _, o := range all {
		o.Observe(e)
	}
}

// watch runs so many calls against an imitation. It belongs into a synctest bubble.
func watch(t *testing.T, c sim.Config, told sluice.Limits, calls int) *observed {
	t.Helper()
	dir := t.TempDir()
	in, out, events := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.jsonl"), filepath.Join(dir, "events.jsonl")
	var lines bytes.Buffer
	for i := range calls {
		fmt.Fprintf(&lines, `{"custom_id":"item-%d","body":{"model":"m-%d","messages":[{"role":"user","content":"Question %d"}],"max_tokens":20}}`+"\n", i, i%2, i)
	}
	check(t, os.WriteFile(in, []byte(strings.ReplaceAll(lines.String(), `"body":`, `"method":"POST","url":"/v1/chat/completions","body":`)), 0o600))
	server, err := sim.New(c)
	check(t, err)
	log, err := telemetry.OpenLog(events, nil)
	check(t, err)
	var o observed
	all := everybody{&o.live, log}
	s, err := sluice.New(sluice.Config{Name: "sim", Limits: told, Observer: all})
	check(t, err)
	p, _ := provider.Lookup("sim")
	b, err := batch.Open(batch.Config{
		Input: in, Output: out, Provider: p, Transport: server.Transport(), Observer: all, Sync: 0, Timeout: 20 * time.Second,
		Scheduler: func(provider.Provider) (*sluice.Scheduler, error) { return s, nil },
		Price:     func(provider.Provider, string) *provider.Price { return provider.FlatPrice(1, 2) },
	})
	check(t, err)
	o.report, err = b.Run(context.Background())
	check(t, err)
	o.snapshot = s.Snapshot()
	check(t, b.Close())
	check(t, s.Close())
	check(t, log.Close())
	o.events, err = os.ReadFile(events)
	check(t, err)
	o.output, err = os.ReadFile(out)
	check(t, err)
	return &o
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fromFiles is the report of what files say; nil is no file.
func fromFiles(t testing.TB, output, events []byte) *telemetry.Report {
	t.Helper()
	var a telemetry.Aggregate
	if output != nil {
		check(t, a.ReadResults(bytes.NewReader(output)))
	}
	if events != nil {
		check(t, a.ReadEvents(bytes.NewReader(events)))
	}
	return a.Report()
}
