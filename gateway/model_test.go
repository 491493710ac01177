package gateway_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// model is a gateway to which everything happens at once: tenants with all kinds of limits, clients that leave and that are slow,
// upstreams that fail, limits and settings that change, pauses.
type model struct {
	t          *testing.T
	luck       *rand.Rand // of what happens to the gateway; each call has its own
	gateway    *gateway.Gateway
	tenants    *gateway.Tenants
	list       []gateway.Tenant
	schedulers map[string]*sluice.Scheduler // by upstream
	upstream   *modelUpstream
	traffic    *gateway.Traffic
	over       []<-chan struct{} // of settings that were there before

	mu      sync.Mutex
	keys    map[string]string
	records map[string][]gateway.Record // by request
}

var modelTenants = []gateway.Tenant{
	{Name: "plain", Weight: 3}, {Name: "narrow", Concurrency: modelSlots["narrow"], MaxQueue: 20},
	{Name: "slow", RPM: 60, TPM: 100_000, MaxWait: 30 * time.Second}, {Name: "poor", MaxCostDay: 0.02, Priority: "high"},
	{Name: "rich", MaxCostMonth: 100, RPM: 600, MaxWait: 5 * time.Second, Priority: "low"}, {Name: "rolled", Concurrency: 4, RPM: 300},
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{t: t, luck: rand.New(rand.NewPCG(seed, 0)), schedulers: make(map[string]*sluice.Scheduler),
		records: make(map[string][]gateway.Record)}
	m.upstream = &modelUpstream{t: t, seed: seed, sim: make(map[string]http.RoundTripper), bodies: make(map[string]string),
		tries: make(map[string]uint64), open: make(map[*http.Request]bool)}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	m.list, m.keys = withKeys(modelTenants)
	m.tenants, err = gateway.OpenTenants(gateway.TenantsConfig{Tenants: m.list, Spent: filepath.Join(t.TempDir(), "spent.json")})
	must(err)
	for _, name := range []string{"one", "two"} {
		host := name + ".test"
		server, err := sim.New(sim.Config{Seed: seed, RPM: 120, Concurrency: modelSlots[host], Latency: time.Second, OutputTokens: 20, Jitter: 1,
			Faults: sim.Faults{ServerError: .05, Overloaded: .05, Reset: .05, Hang: .03, Cut: .1, Throttled: .05}})
		must(err)
		m.upstream.sim[host] = server.Transport()
		m.schedulers[name], err = sluice.New(sluice.Config{Limits: m.limits(host)})
		must(err)
	}
	m.traffic = gateway.NewTraffic(func(r *gateway.Record) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.records[r.ID] = append(m.records[r.ID], *r)
	})
	m.gateway, err = gateway.New(m.config())
	must(err)
	return m
}

// limits are those of an upstream, or fewer requests.
func (m *model) limits(host string) sluice.Limits {
	return sluice.Limits{Concurrency: modelSlots[host], RPM: 60 + m.luck.IntN(60)}
}

// config is another one each time.
func (m *model) config() gateway.Config {
	p, _ := provider.Lookup("openai-compatible")
	var ups []provider.Upstream
	for name, s := range m.schedulers {
		if len(ups) == 1 && m.luck.IntN(4) == 0 {
			break
		}
		ups = append(ups, provider.Upstream{Name: name, Provider: p, BaseURL: "http://" + name + ".test/v1", Scheduler: s,
			Models: map[string]string{"m": "m"}, Price: func(string) *provider.Price { return provider.FlatPrice(1, 2) }})
	}
	all, err := provider.NewUpstreams(provider.UpstreamsConfig{Upstreams: ups, Attempts: 1 + m.luck.IntN(4), Prefer: provider.Preference(m.luck.IntN(2))})
	if err != nil {
		m.t.Fatal(err)
	}
	return gateway.Config{
		Upstreams: all, Base: m.upstream, Tenants: m.tenants, Traffic: m.traffic,
		Deadlines: gateway.Deadlines{Queue: time.Duration(10+m.luck.IntN(50)) * time.Second, FirstByte: 20 * time.Second, Idle: 10 * time.Second, Total: time.Minute},
		Early:     time.Duration(m.luck.IntN(2)) * 300 * time.Millisecond,
	}
}

// disturb has something happen to the gateway.
func (m *model) disturb() (err error) {
	s := m.schedulers[[]string{"one", "two"}[m.luck.IntN(2)]]
	switch m.luck.IntN(6) {
	case 0, 1:
		var over <-chan struct{}
		over, err = m.gateway.Swap(m.config())
		m.over = append(m.over, over)
	case 2:
		err = s.PauseLane("m", pause(time.Duration(m.luck.IntN(90))*time.Second))
	case 3:
		for name, s := range m.schedulers {
			limits := m.limits(name + ".test")
			err = s.SetLimits(limits, limits)
		}
	case 4:
		err = s.Pause()
		time.AfterFunc(time.Duration(m.luck.IntN(20))*time.Second, func() { _ = s.Resume() })
	case 5:
		last := len(m.list) - 1
		if err = m.tenants.Set(m.list[:last]); err != nil {
			return err
		}
		time.Sleep(time.Duration(m.luck.IntN(3)) * time.Second)
		rolled := &m.list[last]
		rolled.RPM, rolled.Concurrency = m.luck.IntN(2)*300, m.luck.IntN(5)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.keys[rolled.Name], rolled.KeySHA256 = gateway.NewKey()
		err = m.tenants.Set(m.list)
	}
	return err
}

// call makes a call as a client may that has all kinds of trouble.
func (m *model) call(item string, luck *rand.Rand) {
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	if luck.IntN(4) == 0 {
		time.AfterFunc(time.Duration(luck.IntN(20_000))*time.Millisecond, cancel)
	}
	path := []string{"/v1/chat/completions", "/chat/completions", "/v1/v1/chat/completions"}[luck.IntN(3)]
	client := &modelClient{header: make(http.Header), cancel: cancel}
	if luck.IntN(6) == 0 {
		client.most = 1 + luck.IntN(4000)
	}
	if luck.IntN(6) == 0 {
		client.slow = time.Duration(luck.IntN(1000)) * time.Millisecond
	}
	stream := luck.IntN(2) == 0
	text := strings.Repeat(item+"|", []int{1, 500, 8000, 40_000}[luck.IntN(4)])
	body := fmt.Sprintf(`{"model":"m","max_tokens":%d,"messages":[{"role":"user","content":"%s"}],"stream":%v}`, 10+luck.IntN(50), text, stream)
	m.upstream.mu.Lock()
	m.upstream.bodies[item] = body
	m.upstream.mu.Unlock()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+path, strings.NewReader(body))
	whose := modelTenants[luck.IntN(len(modelTenants))].Name
	m.mu.Lock()
	key := m.keys[whose]
	m.mu.Unlock()
	for name, value := range map[string]string{"X-Client-Request-Id": item, "X-Request-Id": item, "X-Whose": whose, "X-Sluice-Session": strconv.Itoa(luck.IntN(4)),
		"Authorization": "Bearer " + key} {
		r.Header.Set(name, value)
	}
	begun, whole := time.Now(), false
	func() {
		defer aborted()
		m.gateway.ServeHTTP(client, r)
		whole = true
	}()
	if took := time.Since(begun); took > 5*time.Minute {
		m.t.Errorf("item %s: it took %v", item, took)
	}
	m.check(item, client, whole, ctx.Err() != nil)
}

// check looks at what a client got.
func (m *model) check(item string, client *modelClient, whole, left bool) {
	got := strings.ReplaceAll(client.body.String(), ": waiting\n", "")
	if client.status == http.StatusOK && whole && !left && strings.Contains(got, "ECHO") {
		want := echoOf(item)
		if strings.HasPrefix(client.header.Get("Content-Type"), "text/event-stream") {
			want = strings.Replace(strings.Join(echoParts(item), ""), usageChunk+"\n\n", "", 1)
		}
		if got != want {
			m.t.Errorf("item %s is answered by %d bytes %.300q, want %d", item, len(got), got, len(want))
		}
	}
	if client.status == http.StatusInternalServerError && client.header.Get("X-Sluice-Error") == "internal" {
		m.t.Errorf("item %s: %s", item, got)
	}
}

func TestWhateverHappensAtOnceNothingIsLostOrLeft(t *testing.T) {
	for seed := range suite.Size[uint64](1, 20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newModel(t, seed).run(seed) })
		})
	}
}

func (m *model) run(seed uint64) {
	const n = 250
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			luck := rand.New(rand.NewPCG(seed, uint64(i)+1))
			time.Sleep(time.Duration(luck.IntN(120_000)) * time.Millisecond)
			m.call(strconv.Itoa(1000+i), luck)
		})
	}
	for begun := time.Now(); time.Since(begun) < 150*time.Second; time.Sleep(time.Duration(m.luck.IntN(10_000)) * time.Millisecond) {
		if err := m.disturb(); err != nil {
			m.t.Error(err)
		}
	}
	calls.Wait()
	m.gateway.Drain()
	m.gateway.Wait()
	m.upstream.rest.Wait()
	time.Sleep(time.Minute) // what has a timer runs out
	m.nothingLeft(n)
	for _, s := range m.schedulers {
		if err := s.Close(); err != nil {
			m.t.Error(err)
		}
	}
	if err := m.tenants.Close(); err != nil {
		m.t.Error(err)
	}
}

func (m *model) nothingLeft(n int) {
	for name, s := range m.schedulers {
		for _, lane := range s.Snapshot().Lanes {
			if lane.InFlight != 0 || lane.Waiting != 0 {
				m.t.Errorf("%s, lane %s: %d in flight and %d waiting at the end", name, lane.Lane, lane.InFlight, lane.Waiting)
			}
		}
	}
	for _, what := range m.tenants.Held() {
		m.t.Error(what)
	}
	if slices.ContainsFunc(m.over, func(over <-chan struct{}) bool { return !closed(over) }) {
		m.t.Error("settings of before are in use at the end")
	}
	for r := range m.upstream.open {
		if r.Context().Err() == nil {
			m.t.Errorf("item %s is open at its upstream", r.Header.Get("X-Client-Request-Id"))
		}
	}
	now, ended := m.traffic.Snapshot(), 0
	for _, u := range now.Uses {
		if ended += u.Ended; u.Waiting != 0 || u.Open != 0 {
			m.t.Errorf("traffic at the end: %+v", u)
		}
	}
	if now.Waiting != 0 || now.Open != 0 || ended != n || len(m.records) != n {
		m.t.Errorf("traffic: %d wait and %d are open, %d of %d ended, of %d names", now.Waiting, now.Open, ended, n, len(m.records))
	}
	kinds := make(map[string]int)
	least, most := make(map[string]float64), make(map[string]float64) // that a tenant spent
	for item, all := range m.records {
		r := all[0]
		kinds[r.Kind]++
		if len(all) > 1 {
			m.t.Errorf("item %s has %d records", item, len(all))
		}
		if tries := int(m.upstream.tries[item]); r.Tries != tries {
			m.t.Errorf("item %s: %d tries, and its record says %d", item, tries, r.Tries)
		}
		if r.Wait > time.Minute+time.Second {
			m.t.Errorf("item %s waited %v: a minute is the most", item, r.Wait)
		}
		least[r.Tenant] += r.Cost
		if most[r.Tenant] += r.Cost; r.Usage == (sluice.Usage{}) && r.Tries > 0 { // it may count by its estimate
			most[r.Tenant] += float64(len(m.upstream.bodies[item])+2*60) / 1e6
		}
	}
	m.t.Log(kinds)
	for _, s := range m.tenants.States() {
		if s.Open != 0 || s.Waiting != 0 {
			m.t.Errorf("tenant %s: %d open, %d waiting at the end", s.Name, s.Open, s.Waiting)
		}
		if s.DayUSD < least[s.Name]-1e-9 || s.DayUSD > most[s.Name]+1e-9 {
			m.t.Errorf("tenant %s spent %f: its records say %f to %f", s.Name, s.DayUSD, least[s.Name], most[s.Name])
		}
	}
}
