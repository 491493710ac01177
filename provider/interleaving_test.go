package provider_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// An HTTP/2 body's pipe wakes one reader when it ends: a Close that reads beside a Read leaves one of them there for ever.
func TestCloseBesideAReadOverHTTP2(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done() // a gateway that does not end the stream at once
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	defer srv.CloseClientConnections()
	base := provider.NewBase(4)
	base.TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig
	s, err := sluice.New(sluice.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tr, err := provider.NewTransport(provider.Config{Scheduler: s, Base: base})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, "POST", srv.URL+"/v1/chat/completions",
			bytes.NewReader([]byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`)))
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.ProtoMajor != 2 {
			t.Fatal(resp.Proto)
		}
		var wg sync.WaitGroup
		wg.Go(func() { io.Copy(io.Discard, resp.Body) })
		time.Sleep(20 * time.Millisecond) // it waits for what comes after [DONE]
		wg.Go(func() { resp.Body.Close() })
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("call %d: Read or Close hangs for ever", i)
		}
		cancel()
	}
}
