package batch_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// particular is a server that refuses fields of requests, and counts requests by the fields for the bound of the output and for usage.
type particular struct {
	refuses map[string]string // fields, and the body of the rejection
	status  int

	mu   sync.Mutex
	sent map[string]int
}

func (p *particular) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	var fields map[string]any
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	key, status, answer := "", 200, chatAnswer
	for _, name := range []string{"max_tokens", "max_completion_tokens", "stream_options"} {
		if fields[name] != nil {
			key += " " + name
		}
		if no := p.refuses[name]; fields[name] != nil && no != "" {
			status, answer = p.status, no
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent == nil {
		p.sent = make(map[string]int)
	}
	p.sent[strings.TrimSpace(key)]++
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(answer))}, nil
}

const (
	useOther = `{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}`
	notKnown = `{"detail":[{"type":"extra_forbidden","loc":["body","max_completion_tokens"],"msg":"Extra inputs are not permitted","input":9}]}`
	noOption = `{"error":{"message":"Unrecognized request argument supplied: stream_options","type":"invalid_request_error","param":null}}`
	tooLarge = `{"error":{"message":"max_tokens is too large: 9. This model supports at most 8 completion tokens.","type":"invalid_request_error","param":"max_tokens"}}`
)

func TestAFieldThatSluiceAddedIsSentOnceMoreByItsOtherName(t *testing.T) {
	prompts := strings.Repeat(`{"prompt":"a"}`+"\n", 9)
	for _, c := range []struct {
		name, provider, input string
		server                *particular
		set                   map[string]json.RawMessage
		failed                int
		sent                  map[string]int
	}{
		{"max_tokens is refused", "azure", prompts, &particular{refuses: map[string]string{"max_tokens": useOther}, status: 400}, nil, 0,
			map[string]int{"max_tokens": 1, "max_completion_tokens": 9}},
		{"the name of the row is refused", "openai", prompts, &particular{refuses: map[string]string{"max_completion_tokens": notKnown}, status: 422}, nil, 0,
			map[string]int{"max_completion_tokens": 1, "max_tokens": 9}},
		{"both names are refused", "azure", prompts, &particular{refuses: map[string]string{"max_tokens": useOther, "max_completion_tokens": notKnown}, status: 400}, nil, 9,
			map[string]int{"max_tokens": 1, "max_completion_tokens": 9}},
		{"the value is refused", "azure", prompts, &particular{refuses: map[string]string{"max_tokens": tooLarge}, status: 400}, nil, 9,
			map[string]int{"max_tokens": 9}},
		{"--set is the user's", "azure", prompts, &particular{refuses: map[string]string{"max_tokens": useOther}, status: 400},
			map[string]json.RawMessage{"max_tokens": json.RawMessage("7")}, 9, map[string]int{"max_tokens": 9}},
		{"a row's own field is the user's", "azure", `{"prompt":"a","max_tokens":7}`, &particular{refuses: map[string]string{"max_tokens": useOther}, status: 400}, nil, 1,
			map[string]int{"max_tokens": 1}},
		{"the question for usage is refused", "openai-compatible", strings.Repeat(`{"prompt":"a","stream":true}`+"\n", 3), &particular{refuses: map[string]string{"stream_options": noOption}, status: 400}, nil, 0,
			map[string]int{"max_tokens stream_options": 1, "max_tokens": 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFiles(t, c.input)
			cfg := f.config(t, c.server)
			cfg.Provider, _ = provider.Lookup(c.provider)
			cfg.BaseURL, cfg.Model, cfg.MaxTokens, cfg.Set = "http://a.test/v1", "m", 9, c.set
			cfg.Scheduler = func(provider.Provider) (*sluice.Scheduler, error) {
				s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 1}, Attempts: 1})
				t.Cleanup(func() { s.Close() })
				return s, err
			}
			rep, err := run(t, cfg)
			if err != nil || rep.Report.Failed != c.failed {
				t.Fatalf("%+v, %v", rep.Report, err)
			}
			for fields, n := range c.sent {
				if c.server.sent[fields] != n {
					t.Errorf("%d requests with %q, want %d", c.server.sent[fields], fields, n)
				}
			}
			if len(c.server.sent) != len(c.sent) {
				t.Errorf("sent %v", c.server.sent)
			}
		})
	}
}

func TestAWorkerKnowsWhichFieldSluiceAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &particular{refuses: map[string]string{"max_tokens": useOther}, status: 400}
		f := newFiles(t, strings.Repeat(`{"prompt":"a"}`+"\n", 5)+`{"prompt":"a","max_tokens":7}`)
		cfg := f.config(t, server)
		cfg.Provider, _ = provider.Lookup("azure")
		cfg.BaseURL, cfg.Model, cfg.MaxTokens = "http://a.test/v1", "m", 9
		ferry := newFerry(t, batch.Terms{Attempts: 1})
		there, here := elsewhere(cfg, ferry)
		stop := ferry.work(1, there)
		rep, err := run(t, here)
		stop()
		if err != nil || rep.Done != 5 || rep.Report.Failed != 1 || server.sent["max_completion_tokens"] != 5 {
			t.Errorf("%+v, %v, sent %v", rep.Report, err, server.sent)
		}
	})
}

func TestUpstreamsGetTheFieldByTheNamesOfTheirOwn(t *testing.T) {
	f, files := newFarm(t), newFiles(t, strings.Repeat(`{"prompt":"a"}`+"\n", 40))
	servers := map[string]*particular{
		"old":   {refuses: map[string]string{"max_completion_tokens": notKnown}, status: 400},
		"new":   {refuses: map[string]string{"max_tokens": useOther}, status: 400},
		"wrong": {refuses: map[string]string{"max_tokens": useOther}, status: 400},
	}
	for name, server := range servers {
		f.add(name, server, func(up *provider.Upstream) {
			if name == "new" {
				up.Provider.ChatBound = "max_completion_tokens"
			}
		})
	}
	rep, err := f.run(files, func(cfg *batch.Config) { cfg.Model, cfg.MaxTokens = "m", 9 })
	if err != nil || rep.Done != 40 || servers["old"].sent["max_completion_tokens"] != 0 || servers["new"].sent["max_tokens"] != 0 {
		t.Errorf("%+v, %v: old %v, new %v, wrong %v", rep.Report, err, servers["old"].sent, servers["new"].sent, servers["wrong"].sent)
	}
}

// refusingBatches has a Batch API refuse fields in every request of a part.
type refusingBatches struct {
	http.RoundTripper
	refuses map[string]string // fields, and the body of the rejection
	no      string            // to the requests of the part that was sent last
	parts   []int             // requests in each
}

func (r *refusingBatches) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/files") {
		b, _ := io.ReadAll(req.Body)
		req.Body = io.NopCloser(bytes.NewReader(b))
		r.no = ""
		for field, no := range r.refuses {
			if bytes.Contains(b, []byte(`"`+field+`":`)) {
				r.no = no
			}
		}
		r.parts = append(r.parts, bytes.Count(b, []byte(`"custom_id"`)))
	}
	resp, err := r.RoundTripper.RoundTrip(req)
	if err != nil || r.no == "" || !strings.HasSuffix(req.URL.Path, "/content") {
		return resp, err
	}
	b, _ := io.ReadAll(resp.Body)
	var out bytes.Buffer
	for line := range bytes.Lines(b) {
		var v map[string]any
		if json.Unmarshal(line, &v) != nil {
			continue
		}
		v["response"] = map[string]any{"status_code": 400, "request_id": "r", "body": json.RawMessage(r.no)}
		_ = json.NewEncoder(&out).Encode(v)
	}
	resp.Body, resp.ContentLength = io.NopCloser(&out), int64(out.Len())
	resp.Header.Del("Content-Length")
	return resp, nil
}

func TestABatchSendsAFieldThatSluiceAddedByItsOtherName(t *testing.T) {
	const neither = `{"error":{"message":"property 'max_completion_tokens' is unsupported, did you mean 'max_tokens'?","type":"invalid_request_error"}}`
	for failed, refuses := range map[int]map[string]string{0: {"max_tokens": useOther}, 6: {"max_tokens": useOther, "max_completion_tokens": neither}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFiles(t, strings.Repeat(`{"prompt":"a"}`+"\n", 6))
			cfg, sent := f.viaConfig(t, sim.Config{Latency: time.Millisecond})
			cfg.Model, cfg.MaxTokens, cfg.Budget.Attempts = "m", 9, 1
			server := &refusingBatches{RoundTripper: sent, refuses: refuses}
			cfg.Transport = server
			rep, err := run(t, cfg)
			if err != nil || rep.Report.Failed != failed || rep.Done+failed != 6 || len(server.parts) != 2 || server.parts[1] != 6 {
				t.Errorf("%+v, %v, parts %v", rep.Report, err, server.parts)
			}
			f.tidy(t)
		})
	}
}
