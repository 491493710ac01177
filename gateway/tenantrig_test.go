package gateway_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// tenantRig is a gateway in front of an imitation, within one process.
type tenantRig struct {
	t         testing.TB
	gateway   *gateway.Gateway
	tenants   *gateway.Tenants
	list      []gateway.Tenant
	spent     string            // the file
	keys      map[string]string // by tenant
	scheduler *sluice.Scheduler
	server    *sim.Server
	upstream  *recorder
}

// recorder notes whose request came in which order, by the header X-Whose.
type recorder struct {
	base http.RoundTripper

	mu         sync.Mutex
	whose      []string
	seen       []*http.Request
	items      []int // that were accepted, by the header X-Client-Request-Id
	open, most int
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.whose, r.seen = append(r.whose, req.Header.Get("X-Whose")), append(r.seen, req)
	r.open++
	r.most = max(r.most, r.open)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.open--
		r.mu.Unlock()
	}()
	resp, err := r.base.RoundTrip(req)
	if item, bad := strconv.Atoi(req.Header.Get("X-Client-Request-Id")); bad == nil && err == nil && resp.StatusCode == http.StatusOK {
		r.mu.Lock()
		r.items = append(r.items, item)
		r.mu.Unlock()
	}
	return resp, err
}

func (r *recorder) sent() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.whose[:len(r.whose):len(r.whose)]
}

// rigConfig shapes a tenantRig. The models there are m, at 1 and 2 USD per million tokens, and free, whose price nobody knows.
type rigConfig struct {
	api     string // of the provider. "" is openai-compatible
	sim     sim.Config
	limits  sluice.Limits
	tenants []gateway.Tenant // each gets a key, unless it has one
	gateway gateway.Config
	dir     string
	base    http.RoundTripper // in place of the imitation
	beside  []string          // further upstreams, each with a Scheduler of its own
}

func newTenantRig(t testing.TB, cfg rigConfig) *tenantRig {
	t.Helper()
	server, err := sim.New(cfg.sim)
	if err != nil {
		t.Fatal(err)
	}
	r := &tenantRig{t: t, server: server, upstream: &recorder{base: cmp.Or[http.RoundTripper](cfg.base, server.Transport())}}
	p, _ := provider.Lookup(cmp.Or(cfg.api, "openai-compatible"))
	if r.scheduler, err = sluice.New(sluice.Config{Limits: cfg.limits, Charge: p.Charge, CountsCached: p.CountsCached}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.scheduler.Close() })
	address := "http://only.test/v1"
	if p.Dialect == provider.Anthropic {
		address = "http://only.test"
	}
	all := []provider.Upstream{{
		Name: "only", Provider: p, BaseURL: address, Scheduler: r.scheduler,
		Models: map[string]string{"m": "m", "free": "free"},
		Keys:   []provider.Key{{From: "KEY", Value: "the-upstream-key"}},
		Price: func(model string) *provider.Price {
			if !(model == "m") {
				return nil
			}
			return provider.FlatPrice(1, 2)
		},
	}}
	for _, name := range cfg.beside {
		up := all[0]
		up.Name = name
		if up.Scheduler, err = sluice.New(sluice.Config{Limits: cfg.limits}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { up.Scheduler.Close() })
		all = append(all, up)
	}
	ups, err := provider.NewUpstreams(provider.UpstreamsConfig{Upstreams: all})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.dir == "" {
		cfg.dir = t.TempDir()
	}
	r.spent = filepath.Join(cfg.dir, "spent.json")
	r.list, r.keys = withKeys(cfg.tenants)
	if r.tenants, err = gateway.OpenTenants(gateway.TenantsConfig{Tenants: r.list, Spent: r.spent}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.tenants.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg.gateway.Upstreams, cfg.gateway.Base, cfg.gateway.Tenants = ups, r.upstream, r.tenants
	if r.gateway, err = gateway.New(cfg.gateway); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.nothingLeft)
	return r
}

// withKeys returns tenants with a new key for each that has none, and those keys.
func withKeys(tenants []gateway.Tenant) (all []gateway.Tenant, keys map[string]string) {
	all, keys = slices.Clone(tenants), make(map[string]string)
	for i := range all {
		if one := &all[i]; one.KeySHA256 == "" {
			keys[one.Name], one.KeySHA256 = gateway.NewKey()
		}
	}
	return all, keys
}

// set replaces the tenants.
func (r *tenantRig) set(tenants ...gateway.Tenant) {
	r.t.Helper()
	if err := r.tenants.Set(tenants); err != nil {
		r.t.Fatal(err)
	}
}

// nothingLeft checks that every permit and place came back.
func (r *tenantRig) nothingLeft() {
	r.gateway.Wait()
	if n := r.gateway.Taken(); n != 0 {
		r.t.Errorf("bodies take %d bytes at the end", n)
	}
	for _, lane := range r.scheduler.Snapshot().Lanes {
		if lane.InFlight != 0 || lane.Waiting != 0 {
			r.t.Errorf("lane %s: %d in flight, %d waiting at the end", lane.Lane, lane.InFlight, lane.Waiting)
		}
	}
	for _, s := range r.tenants.States() {
		if s.Open != 0 || s.Waiting != 0 {
			r.t.Errorf("tenant %q: %d open, %d waiting at the end", s.Name, s.Open, s.Waiting)
		}
	}
}

const chatBody = `{"model":"m","max_tokens":10,"messages":[{"role":"user","content":"hello"}]}`

// request is a call of a tenant.
func (r *tenantRig) request(ctx context.Context, tenant string) *http.Request {
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/v1/chat/completions", strings.NewReader(chatBody))
	req.Header.Set("X-Whose", tenant)
	if key := r.keys[tenant]; key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	return req
}

func (r *tenantRig) do(req *http.Request) (w *httptest.ResponseRecorder) {
	w = httptest.NewRecorder()
	defer aborted()
	r.gateway.ServeHTTP(w, req)
	return w
}

// call makes a call, which must be answered.
func (r *tenantRig) call(tenant, session string) *httptest.ResponseRecorder {
	req := r.request(r.t.Context(), tenant)
	if session != "" {
		req.Header.Set("X-Sluice-Session", session)
	}
	w := r.do(req)
	if w.Code != http.StatusOK {
		r.t.Errorf("%s: %s", tenant, text(w))
	}
	return w
}

func text(w *httptest.ResponseRecorder) string {
	b, _ := io.ReadAll(w.Result().Body)
	return fmt.Sprintf("%d %s %v", w.Code, strings.TrimSpace(string(b)), w.Header())
}

// pause is what a provider says that lets nothing through for so long.
func pause(d time.Duration) sluice.Outcome {
	return sluice.Outcome{Kind: sluice.UsageWindow, Wait: d}
}

func contextAfter(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(d, cancel)
	return ctx, cancel
}

func bodyOf(text string) (io.ReadCloser, int64) {
	return io.NopCloser(strings.NewReader(text)), int64(len(text))
}
