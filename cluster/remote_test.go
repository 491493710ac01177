package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/cluster"
	items "github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

func TestACallThatIsHandedOverWhileARunEndsIsTakenBackToo(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		ctx, remote := patient(t), startRemote(t, at)
		ended := make(chan struct{})
		close(ended)
		for n := 1; n <= 2; n++ { // the second comes when the first has been taken back
			if a, err := remote.Do(ctx, itemOf(n, ended)); !errors.Is(err, batch.ErrWithdrawn) {
				t.Fatalf("call %d, which no worker has: %+v, %v", n, a, err)
			}
		}
		if err := remote.Close(ctx, true); err != nil {
			t.Fatal(err)
		}
	})
}

func TestARunThatIsDoneDoesNotWaitForEverForAnEngineThatIsGone(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		remote := startRemote(t, at)
		at.Down(true)
		began := time.Now()
		err := remote.Close(t.Context(), true)
		if err == nil || !strings.Contains(err.Error(), "run the same command again") || time.Since(began) > 15*time.Second {
			t.Errorf("after %v without the engine: %v", time.Since(began), err)
		}
	})
}

// A run that is interrupted while Redis is gone ends after 10 s; the next run has the items that workers had.
func TestARunThatIsInterruptedGivesUpOnAnEngineThatIsGone(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		remote, ended := startRemote(t, at), make(chan struct{})
		w := work(t, open(t, at.Aside()))
		result := make(chan error, 1)
		go func() {
			_, err := remote.Do(t.Context(), itemOf(1, ended))
			result <- err
		}()
		next(t, w)
		time.Sleep(2 * time.Second) // the status is a second old at most
		at.Down(true)
		time.Sleep(5 * time.Second)
		if st := remote.Status(); st.Away == "" || st.InFlight != 1 || st.Waiting != 0 {
			t.Errorf("while the engine is gone: %+v", st)
		}
		close(ended)
		began := time.Now()
		if err := <-result; !errors.Is(err, cluster.ErrClosed) || time.Since(began) > 10*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := remote.Close(t.Context(), false); err != nil {
			t.Error(err)
		}
	})
}

// Results come from a store that others can write to.
func TestARemoteTrustsNoResult(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		remote, w := startRemote(t, at), work(t, open(t, at))
		good := batch.Answer{Input: itemOf(1, nil).Hash.String(), Kind: sluice.OK}
		good.Status, good.Payload = 200, []byte(`{"choices":[]}`)
		good.Tally.Attempts = 1
		other := good
		other.Input = items.HashOf([]byte("y")).String()
		for n, c := range []struct{ result, want string }{
			{string(batch.AppendAnswer(nil, &good)), ""},
			{"garbage\x00", "cannot be read"},
			{string(batch.AppendAnswer(nil, &other)), "belongs to the earlier request"},
			{strings.Replace(string(batch.AppendAnswer(nil, &good)), "sluice-wire 1", "sluice-wire 3", 1), "version sluice-wire 3"},
			{strings.Replace(string(batch.AppendAnswer(nil, &good)), `"kind":"ok"`, `"kind":"auth"`, 1), "value out of range"},
		} {
			completed := make(chan struct{})
			go func() {
				defer close(completed)
				complete(t, w, next(t, w), c.result)
			}()
			a, err := remote.Do(patient(t), itemOf(n+1, nil))
			<-completed
			if err != nil || (a.Kind == sluice.OK) != (c.want == "") || !strings.Contains(a.Message, c.want) {
				t.Errorf("%q: %+v, %v; want %q", c.result, a, err, c.want)
			}
			remote.Recorded([]int{n + 1})
		}
		a, err := remote.Do(patient(t), &batch.Task{Number: 9, Body: make([]byte, cluster.MaxPayload+1)})
		if err != nil || a.Kind != sluice.BadRequest {
			t.Errorf("an item that is too large: %+v, %v", a, err)
		}
		if err := remote.Close(t.Context(), true); err != nil {
			t.Error(err)
		}
	})
}

const rejectedKey = `{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}`

// A key that was rejected stops its worker, and only then.
func TestARunLearnsThatEveryWorkerStopped(t *testing.T) {
	for name, workers := range map[string]int{"one": 1, "two": 2} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, at *cluster.Site) {
				sent := 0
				rep, err := distribute(t, at, workers, 40, func() odd {
					if sent++; sent > 20 {
						return odd{status: 401, body: rejectedKey}
					}
					return odd{}
				})
				if !errors.Is(err, cluster.ErrNoWorkers) || rep.Done != 20 || rep.Failed != 0 {
					t.Errorf("%d done, %d failed, %v", rep.Done, rep.Failed, err)
				}
			})
		})
	}
}

// odd is a response; without a status, the usual one.
type odd struct {
	status int
	body   string
}

// distribute runs that many items by workers. answer is called once at a time.
func distribute(t *testing.T, at *cluster.Site, workers, n int, answer func() odd) (items.Report, error) {
	terms := batch.Terms{Attempts: 6}
	remote := cluster.NewRemote(cluster.JobConfig{Name: "job", Settings: terms.Append(nil)})
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":"What is %d?"}]}}`+"\n", i+1, i+1)
	}
	file := filepath.Join(t.TempDir(), "in.jsonl")
	if err := os.WriteFile(file, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := batch.Config{Input: file, Output: filepath.Join(filepath.Dir(file), "out.jsonl"), BaseURL: "http://x/v1", Remote: remote}
	cfg.Provider, _ = provider.Lookup("openai-compatible")
	b, err := batch.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Start(t.Context(), open(t, at)); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	ctx, drain := context.WithCancel(t.Context())
	transport := &oddProvider{answer: answer}
	for range workers {
		at := open(t, at.Aside())
		serving.Go(func() { serveItems(ctx, t, at, transport) })
	}
	all, err := b.Run(patient(t))
	if err := errors.Join(remote.Close(t.Context(), err == nil), b.Close()); err != nil {
		t.Error(err)
	}
	drain()
	serving.Wait()
	return all.Report, err
}

// serveItems is a worker.
func serveItems(ctx context.Context, t *testing.T, at *cluster.Cluster, transport http.RoundTripper) {
	source, err := at.Source(ctx, cluster.SourceConfig{Lane: func(string) limits.LaneSnapshot { return limits.LaneSnapshot{} }})
	if err != nil {
		t.Error(err)
		return
	}
	s, err := sluice.New(sluice.Config{})
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Close()
	cfg := batch.Config{BaseURL: "http://x/v1", Scheduler: func(provider.Provider) (*sluice.Scheduler, error) { return s, nil }, Transport: transport}
	cfg.Provider, _ = provider.Lookup("openai-compatible")
	w, err := batch.NewWorker(cfg, source)
	if err != nil {
		t.Error(err)
		return
	}
	_, cause := w.Run(ctx)
	if ctx.Err() != nil {
		cause = nil
	}
	if _, err := source.Close(cause); err != nil {
		t.Error(err)
	}
}

// oddProvider answers after 50 ms.
type oddProvider struct {
	mu     sync.Mutex
	answer func() odd
}

func (p *oddProvider) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	time.Sleep(50 * time.Millisecond)
	p.mu.Lock()
	o := p.answer()
	p.mu.Unlock()
	header := http.Header{"Content-Type": {"application/json"}}
	if o.status == 0 {
		o.status, o.body = http.StatusOK, `{"choices":[{"message":{"content":"yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`
	}
	return &http.Response{StatusCode: o.status, Header: header, Body: io.NopCloser(strings.NewReader(o.body)), Request: r}, nil
}

func startRemote(t *testing.T, at *cluster.Site) *cluster.Remote {
	t.Helper()
	remote := cluster.NewRemote(cluster.JobConfig{Name: "job"})
	if err := remote.Start(t.Context(), open(t, at)); err != nil {
		t.Fatal(err)
	}
	return remote
}

func itemOf(n int, withdrawn chan struct{}) *batch.Task {
	return &batch.Task{ID: "a", Number: n, Hash: items.HashOf([]byte("x")), Model: "m", Endpoint: provider.ChatCompletions, Body: []byte("{}"), Withdrawn: withdrawn}
}

func TestAnItemIsDoneOnceMoreUntilItIsRecorded(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		remote, w := startRemote(t, at), work(t, open(t, at))
		for _, message := range []string{"first", "second"} {
			result := batch.Answer{Input: itemOf(1, nil).Hash.String(), Kind: sluice.Rejected, Message: message}
			result.Status, result.Tally.Attempts = 403, 1
			var worker sync.WaitGroup
			worker.Go(func() { complete(t, w, next(t, w), string(batch.AppendAnswer(nil, &result))) })
			if a, err := remote.Do(patient(t), itemOf(1, nil)); err != nil || a.Message != message {
				t.Errorf("%+v, %v; want %s", a, err, message)
			}
			worker.Wait()
		}
		remote.Recorded([]int{1})
		if err := remote.Close(t.Context(), true); err != nil {
			t.Error(err)
		}
	})
}
