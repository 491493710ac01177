package telemetry_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/internal/telemetry"
)

// gatewayOf counts requests of a gateway that stands so.
func gatewayOf(standing gateway.TrafficSnapshot) *telemetry.Gateway {
	return telemetry.NewGateway(func() gateway.TrafficSnapshot { return standing })
}

var answered = gateway.Record{
	Tenant: "amy", Model: "m", Listed: true, Upstream: "house", Provider: "openai", Endpoint: "/v1/chat/completions", Stream: true,
	Status: 200, Kind: gateway.KindOK, Tries: 1, Wait: 2 * time.Second, First: time.Second, Latency: 5 * time.Second,
	Usage: sluice.Usage{Input: 100, Output: 21}, Cost: 0.5, Estimated: 0.125, HasCost: true,
}

func TestRequestsOfAGatewayAreCounted(t *testing.T) {
	g := gatewayOf(gateway.TrafficSnapshot{Uses: []gateway.Use{{Tenant: "amy", Model: "m", Waiting: 1, Open: 2}, {Tenant: "amy", Model: "n", Waiting: 2}, {Waiting: 1}}})
	g.Ended(&answered)
	g.Ended(&gateway.Record{Tenant: "amy", Model: "m", Listed: true, Status: 429, Kind: "queue_timeout", Wait: time.Minute})
	g.Ended(&gateway.Record{Status: 403, Kind: "forbidden"})
	got := scrape(t, g)
	of := `gen_ai_operation_name="chat",gen_ai_provider_name="openai",gen_ai_request_model="m"`
	for name, want := range map[string]float64{
		`sluice_gateway_requests_total{kind="ok",model="m",tenant="amy"}`:             1,
		`sluice_gateway_requests_total{kind="queue_timeout",model="m",tenant="amy"}`:  1,
		`sluice_gateway_requests_total{kind="forbidden",model="other",tenant="none"}`: 1,
		`sluice_gateway_admissions_total{model="m",tenant="amy"}`:                     1,
		`sluice_gateway_refusals_total{reason="queue_timeout",tenant="amy"}`:          1,
		`sluice_gateway_refusals_total{reason="forbidden",tenant="none"}`:             1,
		`sluice_gateway_tokens_total{direction="output",model="m",tenant="amy"}`:      21,
		`sluice_gateway_cost_usd_total{model="m",tenant="amy"}`:                       0.5,
		`sluice_gateway_cost_estimated_usd_total{model="m",tenant="amy"}`:             0.125,
		`sluice_gateway_wait_seconds{model="m",tenant="amy"}`:                         2,
		`sluice_gateway_waiting{tenant="amy"}`:                                        3,
		`sluice_gateway_open{tenant="amy"}`:                                           2,
		`sluice_gateway_waiting{tenant="none"}`:                                       1,
		`gen_ai_client_token_usage{` + of + `,gen_ai_token_type="input"}`:             1,
		`gen_ai_client_operation_duration_seconds{error_type="",` + of + `}`:          1,
		`gen_ai_server_time_to_first_token_seconds{` + of + `}`:                       1,
		`gen_ai_server_time_per_output_token_seconds{` + of + `}`:                     1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

func TestAnOperationIsWhatTheEndpointDoes(t *testing.T) {
	g := gatewayOf(gateway.TrafficSnapshot{})
	for endpoint, want := range map[string]string{
		"/v1/chat/completions": "chat", "/v1/responses": "chat", "/v1/messages": "chat", "/v1/embeddings": "embeddings",
		"/v1beta/models/{model}:streamGenerateContent": "generate_content", "/v1beta/models/{model}:batchEmbedContents": "embeddings",
		"/v1/messages/count_tokens": "count_tokens", "/v1beta/models/{model}:countTokens": "count_tokens",
		"/v1/files": "other", "/v1/messages/batches": "other",
	} {
		r := answered
		r.Endpoint, r.Model = endpoint, strings.Trim(endpoint, "/")
		g.Ended(&r)
		name := fmt.Sprintf(`gen_ai_client_operation_duration_seconds{error_type="",gen_ai_operation_name=%q,gen_ai_provider_name="openai",gen_ai_request_model=%q}`, want, r.Model)
		if got := scrape(t, g)[name]; got != 1 {
			t.Errorf("%s is no %s", endpoint, want)
		}
	}
}

func TestClientsChooseNoLabelOfAGateway(t *testing.T) {
	g := gatewayOf(gateway.TrafficSnapshot{})
	for i := range 1000 {
		r := answered
		r.Model, r.Listed = fmt.Sprintf("gpt-%d", i), false
		g.Ended(&r)
	}
	got := scrape(t, g)
	if n := got[`sluice_gateway_requests_total{kind="ok",model="other",tenant="amy"}`]; n != 1000 || len(got) > 20 {
		t.Errorf("%v of them, %d series", n, len(got))
	}
}

// The conventions for generative AI say which buckets each histogram has.
func TestHistogramsOfTheConventionsHaveTheirBuckets(t *testing.T) {
	g := gatewayOf(gateway.TrafficSnapshot{})
	g.Ended(&answered)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(g)
	families, err := registry.Gather()
	check(t, err)
	bounds := make(map[string]string)
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "gen_ai_") {
			var all []string
			for _, b := range f.Metric[0].GetHistogram().Bucket {
				all = append(all, fmt.Sprint(b.GetUpperBound()))
			}
			bounds[f.GetName()] = strings.Join(all, " ")
		}
	}
	want := map[string]string{
		"gen_ai_client_token_usage":                   "1 4 16 64 256 1024 4096 16384 65536 262144 1.048576e+06 4.194304e+06 1.6777216e+07 6.7108864e+07",
		"gen_ai_client_operation_duration_seconds":    "0.01 0.02 0.04 0.08 0.16 0.32 0.64 1.28 2.56 5.12 10.24 20.48 40.96 81.92",
		"gen_ai_server_time_per_output_token_seconds": "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5",
		"gen_ai_server_time_to_first_token_seconds":   "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10",
	}
	if diff := cmp.Diff(want, bounds); diff != "" {
		t.Error(diff)
	}
}
