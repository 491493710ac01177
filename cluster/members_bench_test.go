package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/cluster"
)

// memberVariable tells the test binary to be a member, and what kind of one.
const memberVariable = "SLUICE_TEST_MEMBER"

func TestMain(m *testing.M) {
	if text := os.Getenv(memberVariable); text != "" {
		var who member
		if err := json.Unmarshal([]byte(text), &who); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		who.run()
		return
	}
	os.Exit(m.Run())
}

// member is a process that makes calls within the limit of all.
type member struct {
	Name, Engine, Provider string
	Limits                 sluice.Limits
	Waiting                int     // so many calls want to go at any time,
	PerSecond              float64 // or so many come a second, at random
	For                    time.Duration
	Bare                   bool // it asks the engine for nothing, at the same times, and calls nobody
}

// memberReport is what it prints in the end.
type memberReport struct {
	Calls    int
	Refused  int
	P50, P99 time.Duration // of what a call waited
	Most     time.Duration
}

func (m *member) run() {
	ctx, cancel := context.WithTimeout(context.Background(), m.For)
	defer cancel()
	var (
		mu    sync.Mutex
		waits []time.Duration
		r     memberReport
	)
	one := m.caller(ctx, func(waited time.Duration, refused bool) {
		mu.Lock()
		defer mu.Unlock()
		waits = append(waits, waited)
		r.Calls++
		if refused {
			r.Refused++
		}
	})
	var wg sync.WaitGroup
	for range m.Waiting {
		wg.Go(func() {
			for ctx.Err() == nil {
				one()
			}
		})
	}
	if m.PerSecond > 0 {
		next := time.Now()
		for ctx.Err() == nil {
			next = next.Add(time.Duration(rand.ExpFloat64() / m.PerSecond * float64(time.Second)))
			time.Sleep(time.Until(next))
			wg.Go(one)
		}
	}
	<-ctx.Done()
	wg.Wait()
	if slices.Sort(waits); len(waits) > 0 {
		r.P50, r.P99, r.Most = waits[len(waits)/2], waits[len(waits)*99/100], waits[len(waits)-1]
	}
	json.NewEncoder(os.Stdout).Encode(r)
}

// caller returns what makes one call.
func (m *member) caller(ctx context.Context, done func(waited time.Duration, refused bool)) func() {
	if m.Bare {
		opt, err := rueidis.ParseURL(m.Engine)
		must(err)
		client, err := rueidis.NewClient(opt)
		must(err)
		script := rueidis.NewLuaScript(`return 1`)
		return func() {
			start := time.Now()
			if script.Exec(ctx, client, []string{"{bare}"}, nil).Error() == nil {
				done(time.Since(start), false)
			}
		}
	}
	c, err := cluster.Open(ctx, cluster.Config{URL: m.Engine, Role: "run"})
	must(err)
	s, err := sluice.New(sluice.Config{Limits: m.Limits, Ledger: c.Ledger("account", cluster.LedgerConfig{})})
	must(err)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	return func() {
		p, err := s.Acquire(ctx, sluice.Call{Lane: "m"})
		if err != nil {
			return
		}
		o := sluice.Outcome{}
		req, _ := http.NewRequest("POST", m.Provider, strings.NewReader("{}"))
		req.Header.Set("X-Member", m.Name)
		resp, err := client.Do(req)
		must(err)
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode == http.StatusTooManyRequests {
			o.Kind = sluice.RateLimit
		}
		done(p.Waited(), o.Kind != sluice.OK)
		p.Release(o)
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "member:", err)
		os.Exit(1)
	}
}

func (p *strict) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if member, _ := strconv.Atoi(r.Header.Get("X-Member")); !p.call(r.Context(), member) {
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	w.Write([]byte("{}"))
}

// window is the most calls that were served within a minute.
func (p *strict) window() (most int) {
	first := 0
	for last := range p.served {
		for p.served[last].at.Sub(p.served[first].at) >= time.Minute {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// together runs members as processes, and returns what they report.
func together(tb testing.TB, members []member) []memberReport {
	tb.Helper()
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		tb.Fatal(err)
	}
	reports := make([]memberReport, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		text, _ := json.Marshal(m)
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), memberVariable+"="+string(text))
		cmd.Stderr = os.Stderr
		wg.Go(func() {
			out, err := cmd.Output()
			if err == nil {
				err = json.Unmarshal(out, &reports[i])
			}
			if err != nil {
				tb.Errorf("%s: %v: %s", m.Name, err, out)
			}
		})
	}
	wg.Wait()
	return reports
}

// BenchmarkMembers has four processes share one limit by a real engine, and says how much of it they used, and how evenly:
//
//	go test ./cluster -run '^$' -bench Members -benchtime 1x -timeout 0
func BenchmarkMembers(b *testing.B) {
	few, many := sluice.Limits{RPM: 50, Concurrency: 5}, sluice.Limits{RPM: 30_000}
	for _, c := range []struct {
		name   string
		limits sluice.Limits
		burst  float64
		takes  time.Duration
		demand []int
		long   time.Duration
	}{
		{"50 RPM and 5 slots, even", few, 2, 2 * time.Second, []int{8, 8, 8, 8}, 4 * time.Minute},
		{"50 RPM and 5 slots, 32:1:0:0", few, 2, 2 * time.Second, []int{32, 1, 0, 0}, 4 * time.Minute},
		{"30,000 RPM, even", many, 500, 20 * time.Millisecond, []int{32, 32, 32, 32}, time.Minute},
		{"30,000 RPM, 32:1:0:0", many, 500, 20 * time.Millisecond, []int{128, 4, 0, 0}, time.Minute},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				engine := newServer(b, "--appendonly", "yes").url()
				q := &strict{limits: c.limits, burst: c.burst, takes: c.takes}
				provider := httptest.NewServer(q)
				var members []member
				for i, n := range c.demand {
					members = append(members, member{Name: fmt.Sprint(i), Engine: engine, Provider: provider.URL, Limits: c.limits, Waiting: n, For: c.long})
				}
				together(b, members)
				provider.Close()
				q.report(b, len(members))
				scripts, _ := evalshas(b, client(b, cluster.SiteAt(engine)))
				b.ReportMetric(scripts/float64(len(q.served)), "scripts/start")
			}
		})
	}
}

// report says how the limits were used, from the first call to the last.
func (p *strict) report(b *testing.B, members int) {
	if len(p.served) == 0 {
		b.Fatal("no call was served")
	}
	span := p.served[len(p.served)-1].at.Sub(p.served[0].at).Seconds()
	each := p.shares(members)
	b.ReportMetric(float64(len(p.served)-1)/(span*float64(p.limits.RPM)/60), "used")
	b.ReportMetric(jain(each), "Jain")
	b.ReportMetric(float64(p.refused), "throttles")
	b.ReportMetric(float64(p.window()), "most-a-minute")
	b.ReportMetric(float64(p.most), "most-open")
	b.Logf("served by member: %v", each)
}

// BenchmarkAddedWait has calls come at random, 80 % of what the limit allows, and says what they wait, beside the bare round
// trip of a script that does nothing, at the same load:
//
//	go test ./cluster -run '^$' -bench AddedWait -benchtime 1x -timeout 0
func BenchmarkAddedWait(b *testing.B) {
	const rate, members, long = 400.0, 4, 30 * time.Second
	limits := sluice.Limits{RPM: 30_000}
	for _, bare := range []bool{true, false, true, false} {
		name := "ledger"
		if bare {
			name = "bare"
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				engine := newServer(b, "--appendonly", "yes").url()
				q := &strict{limits: limits, burst: 500, takes: 20 * time.Millisecond}
				provider := httptest.NewServer(q)
				var all []member
				for i := range members {
					all = append(all, member{Name: fmt.Sprint(i), Engine: engine, Provider: provider.URL, Limits: limits, PerSecond: rate / members, For: long, Bare: bare})
				}
				reports := together(b, all)
				provider.Close()
				var p50, p99, most time.Duration
				calls := 0
				for _, r := range reports {
					p50, p99, most, calls = max(p50, r.P50), max(p99, r.P99), max(most, r.Most), calls+r.Calls
				}
				b.ReportMetric(float64(p50.Microseconds()), "p50-µs")
				b.ReportMetric(float64(p99.Microseconds()), "p99-µs")
				b.ReportMetric(float64(most.Microseconds()), "max-µs")
				scripts, _ := evalshas(b, client(b, cluster.SiteAt(engine)))
				b.ReportMetric(scripts/float64(calls), "scripts/start")
				b.ReportMetric(float64(q.refused), "throttles")
			}
		})
	}
}
