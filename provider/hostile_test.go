package provider_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// canned answers every request with the same answer.
type canned struct {
	status int
	header http.Header
	body   io.Reader
}

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	h := c.header.Clone()
	if h == nil {
		h = http.Header{}
	}
	return &http.Response{StatusCode: c.status, Status: http.StatusText(c.status), Header: h, Body: io.NopCloser(c.body),
		ContentLength: -1, Request: r}, nil
}

func hostileExchange(t *testing.T, rt http.RoundTripper) (provider.Answer, sluice.Outcome) {
	t.Helper()
	p, _ := provider.Lookup("openai")
	req, err := p.NewRequest(t.Context(), provider.Target{BaseURL: "http://host/v1", Key: "sk-sentinel-0123456789", Endpoint: provider.ChatCompletions, Model: "m"}, []byte(`{"model":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	return provider.Exchange(t.Context(), rt, nil, req, provider.ExchangeConfig{Provider: p, Endpoint: provider.ChatCompletions,
		Key: "sk-sentinel-0123456789"})
}

// never is a body that must not be read.
type never struct{ t *testing.T }

func (n never) Read([]byte) (int, error) {
	n.t.Error("the body of an answer that is none was read: it may never end")
	return 0, io.EOF
}

func TestSwitchedProtocolsAreNoAnswer(t *testing.T) {
	if _, o := hostileExchange(t, canned{status: 101, body: never{t}}); o.Kind != sluice.Network {
		t.Errorf("kind %v, want network", o.Kind)
	}
}

func TestARequestIDThatEchoesTheKeyIsStruck(t *testing.T) {
	h := http.Header{"X-Request-Id": {"req-sk-sentinel-0123456789"}}
	for _, status := range []int{200, 400} {
		a, _ := hostileExchange(t, canned{status: status, header: h, body: strings.NewReader(`{"choices":[{}]}`)})
		if strings.Contains(a.RequestID, "sentinel") {
			t.Errorf("status %d: request id %q holds the key", status, a.RequestID)
		}
	}
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestAnEndlessRefusalIsJudgedByItsBeginning(t *testing.T) {
	h := http.Header{"Retry-After": {"7"}}
	for status, want := range map[int]sluice.Kind{429: sluice.RateLimit, 500: sluice.ServerError} {
		_, o := hostileExchange(t, canned{status: status, header: h, body: endless{}})
		if o.Kind != want {
			t.Errorf("status %d: kind %v, want %v", status, o.Kind, want)
		}
	}
}
