package provider_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// Whoever copies an answer to somebody that takes no more ends that by closing it.
func TestAnAnswerIsClosedThoughItIsStillCopied(t *testing.T) {
	base := roundTrip(func(r *http.Request) (*http.Response, error) {
		r.Body.Close()
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(chatAnswer))}, nil
	})
	f, err := provider.NewForwarder(provider.ForwarderConfig{Upstreams: upstreams(t, provider.UpstreamsConfig{}, "a"), Base: base})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := f.Do(t.Context(), provider.Forwarded{
		Endpoint: provider.ChatCompletions, Call: sluice.Call{Lane: "m"},
		Body: func(provider.Destination) (io.ReadCloser, int64, error) {
			return io.NopCloser(strings.NewReader("{}")), 2, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	from, to := io.Pipe()
	defer from.Close()
	go io.Copy(to, reply.Body)
	if _, err := io.ReadFull(from, make([]byte, 1)); err != nil { // and no more
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		reply.Body.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Error("closing waits for who reads")
	}
}
