package batch_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// spentWatch sees how many calls are sent after the first answer that says the money is spent.
type spentWatch struct {
	http.RoundTripper

	mu    sync.Mutex
	open  int
	then  int // open when that answer came
	after int // sent since
	spent bool
}

func (w *spentWatch) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.open++
	if w.spent {
		w.after++
	}
	w.mu.Unlock()
	resp, err := w.RoundTripper.RoundTrip(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open--
	if err == nil && resp.StatusCode == http.StatusTooManyRequests && !w.spent {
		w.spent, w.then = true, w.open
	}
	return resp, err
}

// playSpent runs scenario I: the account's money is spent after 100 answers.
func playSpent(tb testing.TB, rt http.RoundTripper, baseURL string) (sentAfter, openThen int) {
	w := &spentWatch{RoundTripper: rt}
	f := newFiles(tb, chats(400))
	cfg := f.config(tb, w)
	cfg.BaseURL = baseURL
	rep, err := run(tb, cfg)
	if stop, ok := err.(*work.StoppedError); !ok || !w.spent || rep.Done != len(f.results(tb)) {
		tb.Errorf("error %v (%v), %d done of %d recorded", err, stop, rep.Done, len(f.results(tb)))
	}
	return w.after, w.then
}

func TestASpentAccountIsCalledNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newSim(t, sim.Config{SpentAfter: 100, Latency: 200 * time.Millisecond, Jitter: .3})
		after, open := playSpent(t, srv.Transport(), "")
		if after > 0 {
			t.Errorf("%d calls were sent after the first answer that said so; %d were open", after, open)
		}
	})
}

// twoModels runs scenario M: a file of two models, its lines mixed, of which one pauses for a minute from the first second
// on. It returns how long each took.
func twoModels(tb testing.TB, paused, free http.RoundTripper) (pausedTook, freeTook time.Duration) {
	const n = ofEachModel
	var text strings.Builder
	for i := range 2 * n {
		fmt.Fprintln(&text, strings.Replace(chat(i), `"m"`, []string{`"free"`, `"paused"`}[i%2], 1))
	}
	f := newFiles(tb, text.String())
	cfg := f.config(tb, roundTripper(func(r *http.Request) (*http.Response, error) {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		head := make([]byte, 64)
		n, _ := io.ReadFull(body, head)
		if strings.Contains(string(head[:n]), `"paused"`) {
			return paused.RoundTrip(r)
		}
		return free.RoundTrip(r)
	}))
	start := time.Now()
	var mu sync.Mutex
	cfg.OnResult = func(r *work.Result) {
		mu.Lock()
		defer mu.Unlock()
		if r.Lane == "free" {
			freeTook = time.Since(start)
		} else {
			pausedTook = time.Since(start)
		}
	}
	if rep, err := run(tb, cfg); err != nil || rep.Done != 2*n {
		tb.Errorf("%d of %d done, error %v", rep.Done, 2*n, err)
	}
	return pausedTook, freeTook
}

const ofEachModel = 300

// ratio is how long the items of one model took to how long they had to.
func ratio(took time.Duration, c sim.Config) float64 {
	bodies := make([][]byte, ofEachModel)
	for i := range bodies {
		bodies[i] = []byte(`{"model":"m","messages":[{"role":"user","content":"What is 100?"}]}`)
	}
	return took.Seconds() / c.Optimum(c.Workload("/v1/chat/completions", bodies...)).Seconds()
}

func pausing() sim.Config {
	c := going()
	c.Storms = []sim.Storm{{From: time.Second, To: 21 * time.Second}}
	return c
}

func going() sim.Config {
	return sim.Config{RPM: 1200, Burst: time.Second, Latency: 200 * time.Millisecond}
}

func TestALongPauseOfOneModelCostsTheOtherNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paused, free := twoModels(t, newSim(t, pausing()).Transport(), newSim(t, going()).Transport())
		if f, p := ratio(free, going()), ratio(paused, pausing()); f > 1.04 || p > 1.08 {
			t.Errorf("the free model took %.3f of the optimum, the other %.3f", f, p)
		}
	})
}

// dyingUpstream runs scenario N over sockets: two upstreams of ten calls a second each, with bursts of a second, of which one
// is gone from second 5 on. It returns how long it took to how long it had to.
func dyingUpstream(b *testing.B) (ratio float64, rep batch.Report) {
	const items, rate, dies = 400, 10, 5
	f, files := newFarm(b), newFiles(b, chats(items))
	base := provider.NewBase(64)
	defer base.CloseIdleConnections()
	c := sim.Config{RPM: 60 * rate, Burst: time.Second, Latency: 200 * time.Millisecond}
	var servers []*httptest.Server
	for _, name := range []string{"dying", "other"} {
		ts := httptest.NewServer(newSim(b, c))
		b.Cleanup(ts.Close)
		servers = append(servers, ts)
		f.add(name, base, func(up *provider.Upstream) { up.BaseURL = ts.URL + "/v1" })
		f.hosts[strings.TrimPrefix(ts.URL, "http://")] = base
	}
	time.AfterFunc(dies*time.Second, func() {
		servers[0].Listener.Close()
		servers[0].CloseClientConnections()
	})
	rep, err := f.run(files)
	if err != nil || rep.Done != items {
		b.Errorf("%d done, error %v", rep.Done, err)
	}
	alone := items - rate*(1+dies) - rate // what the other does beyond its burst
	return rep.Wall.Seconds() / (float64(alone)/rate + c.Latency.Seconds()), rep
}

// BenchmarkScenario plays over real sockets what concerns a whole batch.
func BenchmarkScenario(b *testing.B) {
	serve := func(c sim.Config) string {
		srv, err := sim.New(c)
		if err != nil {
			b.Fatal(err)
		}
		ts := httptest.NewServer(srv)
		b.Cleanup(ts.Close)
		return ts.URL
	}
	b.Run("I spent quota", func(b *testing.B) {
		for b.Loop() {
			base := provider.NewBase(64)
			after, open := playSpent(b, base, serve(sim.Config{SpentAfter: 100, Latency: 200 * time.Millisecond, Jitter: .3})+"/v1")
			base.CloseIdleConnections()
			b.ReportMetric(float64(after), "sent-after")
			b.ReportMetric(float64(open), "in-flight-then")
		}
	})
	b.Run("M two models, one pauses", func(b *testing.B) {
		for b.Loop() {
			base := provider.NewBase(64)
			to := func(url string) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					r = r.Clone(context.Background())
					r.URL.Scheme, r.URL.Host = "http", strings.TrimPrefix(url, "http://")
					return base.RoundTrip(r)
				})
			}
			paused, free := twoModels(b, to(serve(pausing())), to(serve(going())))
			base.CloseIdleConnections()
			b.ReportMetric(ratio(free, going()), "free-ratio")
			b.ReportMetric(ratio(paused, pausing()), "paused-ratio")
		}
	})
	b.Run("N two upstreams, one dies", func(b *testing.B) {
		for b.Loop() {
			ratio, rep := dyingUpstream(b)
			b.ReportMetric(ratio, "ratio")
			b.ReportMetric(float64(rep.Throttles), "throttles")
			b.ReportMetric(float64(rep.Attempts-rep.Done), "tried-again")
		}
	})
}
