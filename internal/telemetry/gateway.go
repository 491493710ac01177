package telemetry

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-llm/sluice/gateway"
)

// Gateway counts requests of a gateway for Prometheus. It is a prometheus.Collector, and safe for concurrent use.
//
// Its labels are tenants, and models that the settings name; all others are "other", since clients choose those.
type Gateway struct {
	snapshot func() gateway.TrafficSnapshot
	tenants  *table[string, string]
	models   *table[string, string]

	requests, admissions, refusals, tokens, cost, estimated *prometheus.CounterVec
	wait                                                    *prometheus.HistogramVec

	usage, duration, first, each *prometheus.HistogramVec // those of the conventions for generative AI

	waiting, open *prometheus.Desc

	found sync.Map // of seriesKey: *gatewaySeries. Labels bound how many there are
}

// seriesKey are the labels of a request.
type seriesKey struct {
	kind, tenant, model, operation, provider string
	sent                                     bool
}

// gatewaySeries are what a request counts in, looked up once for all that are alike.
type gatewaySeries struct {
	requests, refusals, admissions, input, output, cost, estimated prometheus.Counter
	wait, usedIn, usedOut, duration, first, each                   prometheus.Observer
}

const noTenant = "none" // of requests of nobody in particular

// NewGateway returns a Gateway that calls snapshot for the current state.
func NewGateway(snapshot func() gateway.TrafficSnapshot) *Gateway {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "sluice", Subsystem: "gateway", Name: name, Help: help}, labels)
	}
	genAI := func(name, help string, buckets []float64, more ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "gen_ai", Name: name, Help: help, Buckets: buckets},
			append(more, "gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model"))
	}
	same := func(text string) *string { l := label(text); return &l }
	others := func() *string { l := otherLanes; return &l }
	return &Gateway{
		snapshot: snapshot, tenants: newTable(same, others), models: newTable(same, others),

		requests:   counter("requests_total", "Finished requests, by kind of result.", "kind", "tenant", "model"),
		admissions: counter("admissions_total", "Requests that were sent to an upstream.", "tenant", "model"),
		refusals:   counter("refusals_total", "Requests that the gateway itself rejected, by reason.", "reason", "tenant"),
		tokens:     counter("tokens_total", "Tokens of requests, over all attempts.", "direction", "tenant", "model"),
		cost:       counter("cost_usd_total", "Cost of requests in US dollars, if prices are known.", "tenant", "model"),
		estimated:  counter("cost_estimated_usd_total", "Estimated cost in US dollars of responses without usage data.", "tenant", "model"),
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "sluice", Subsystem: "gateway", Name: "wait_seconds", Help: "Wait of a request, over all attempts.", Buckets: waitBuckets(),
		}, []string{"tenant", "model"}),

		usage: genAI("client_token_usage", "Number of input and output tokens used.",
			[]float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}, "gen_ai_token_type"),
		duration: genAI("client_operation_duration_seconds", "GenAI operation duration.",
			[]float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}, "error_type"),
		first: genAI("server_time_to_first_token_seconds", "Time until the first token of a stream.",
			[]float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}),
		each: genAI("server_time_per_output_token_seconds", "Time per output token of a stream after the first token.",
			[]float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5}),

		waiting: prometheus.NewDesc("sluice_gateway_waiting", "Waiting requests.", []string{"tenant"}, nil),
		open:    prometheus.NewDesc("sluice_gateway_open", "Requests in flight at upstreams.", []string{"tenant"}, nil),
	}
}

// Ended counts a request that ended.
func (g *Gateway) Ended(r *gateway.Record) {
	key := seriesKey{kind: r.Kind, tenant: g.tenant(r.Tenant), model: g.model(r), sent: r.Tries > 0}
	if key.sent {
		key.operation, key.provider = operationOf(r.Endpoint), r.Provider
	}
	found, ok := g.found.Load(key)
	if !ok {
		found, _ = g.found.LoadOrStore(key, g.series(key))
	}
	to := found.(*gatewaySeries)
	to.requests.Inc()
	if to.refusals != nil {
		to.refusals.Inc()
	}
	if r.Model != "" {
		to.wait.Observe(r.Wait.Seconds())
	}
	if key.sent {
		to.made(r)
	}
}

// series looks up what requests with those labels count in.
func (g *Gateway) series(k seriesKey) *gatewaySeries {
	to := &gatewaySeries{requests: g.requests.WithLabelValues(k.kind, k.tenant, k.model), wait: g.wait.WithLabelValues(k.tenant, k.model)}
	if refused(k.kind) {
		to.refusals = g.refusals.WithLabelValues(k.kind, k.tenant)
	}
	if !k.sent {
		return to
	}
	provider, fault := conventional(k.provider), k.kind
	if fault == gateway.KindOK {
		fault = ""
	}
	to.admissions, to.cost = g.admissions.WithLabelValues(k.tenant, k.model), g.cost.WithLabelValues(k.tenant, k.model)
	to.estimated = g.estimated.WithLabelValues(k.tenant, k.model)
	to.input, to.output = g.tokens.WithLabelValues("input", k.tenant, k.model), g.tokens.WithLabelValues("output", k.tenant, k.model)
	to.usedIn = g.usage.WithLabelValues("input", k.operation, provider, k.model)
	to.usedOut = g.usage.WithLabelValues("output", k.operation, provider, k.model)
	to.duration = g.duration.WithLabelValues(fault, k.operation, provider, k.model)
	to.first, to.each = g.first.WithLabelValues(k.operation, provider, k.model), g.each.WithLabelValues(k.operation, provider, k.model)
	return to
}

func refused(kind string) bool {
	switch kind {
	case gateway.KindOK, gateway.KindUpstream, gateway.KindCut, gateway.KindClientGone:
		return false
	}
	return true
}

// made counts a call that was sent.
func (to *gatewaySeries) made(r *gateway.Record) {
	in, out := float64(max(0, r.Usage.Input)), float64(max(0, r.Usage.Output)) // answers may state less
	to.admissions.Inc()
	to.input.Add(in)
	to.output.Add(out)
	to.cost.Add(max(0, r.Cost))
	to.estimated.Add(max(0, r.Estimated))
	if in+out > 0 {
		to.usedIn.Observe(in)
		to.usedOut.Observe(out)
	}
	took := max(0, r.Latency-r.Wait)
	to.duration.Observe(took.Seconds())
	if !r.Stream || r.Kind != gateway.KindOK {
		return
	}
	to.first.Observe(r.First.Seconds())
	if out > 1 {
		to.each.Observe(max(0, took-r.First).Seconds() / (out - 1))
	}
}

// operationOf is what an endpoint does, as the conventions have it; count_tokens and other are words of ours.
func operationOf(endpoint string) string {
	switch lower := strings.ToLower(endpoint); {
	case strings.Contains(lower, "embed"):
		return "embeddings"
	case strings.HasSuffix(lower, "/count_tokens"), strings.HasSuffix(lower, ":counttokens"):
		return "count_tokens"
	case strings.Contains(lower, ":"):
		return "generate_content"
	case lower == "/v1/chat/completions", lower == "/v1/responses", lower == "/v1/messages":
		return "chat"
	}
	return "other" // a path that is passed through
}

func (g *Gateway) tenant(name string) string {
	if name == "" {
		return noTenant
	}
	return *g.tenants.of(name)
}

func (g *Gateway) model(r *gateway.Record) string {
	if !r.Listed {
		return otherLanes
	}
	return *g.models.of(r.Model)
}

func (g *Gateway) vecs() []prometheus.Collector {
	return []prometheus.Collector{g.requests, g.admissions, g.refusals, g.tokens, g.cost, g.estimated, g.wait, g.usage, g.duration, g.first, g.each}
}

// Describe sends what each metric is.
func (g *Gateway) Describe(ch chan<- *prometheus.Desc) {
	for _, v := range g.vecs() {
		v.Describe(ch)
	}
	ch <- g.waiting
	ch <- g.open
}

// Collect sends the values of all metrics.
func (g *Gateway) Collect(ch chan<- prometheus.Metric) {
	for _, v := range g.vecs() {
		v.Collect(ch)
	}
	type standing struct{ waiting, open int }
	all := map[string]standing{noTenant: {}}
	for _, u := range g.snapshot().Uses {
		name := g.tenant(u.Tenant)
		all[name] = standing{all[name].waiting + u.Waiting, all[name].open + u.Open}
	}
	for name, n := range all {
		ch <- prometheus.MustNewConstMetric(g.waiting, prometheus.GaugeValue, float64(n.waiting), name)
		ch <- prometheus.MustNewConstMetric(g.open, prometheus.GaugeValue, float64(n.open), name)
	}
}
