package provider_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// slow is a Holder whom it takes a while to note a release.
type slow struct{ noted bool }

func (*slow) Sent(*sluice.Permit, time.Time) {}

func (h *slow) Released(*sluice.Permit, bool, sluice.Kind, sluice.Usage) {
	time.Sleep(time.Second)
	h.noted = true
}

// Whoever closes a body may go by that its permit is back, and what it used counted: also if somebody else is at giving it back.
func TestAClosedBodysPermitIsBackWhoeverGivesItBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := io.Pipe()
		defer to.Close()
		base := roundTrip(func(r *http.Request) (*http.Response, error) {
			r.Body.Close()
			context.AfterFunc(r.Context(), func() { to.CloseWithError(context.Canceled) })
			go io.WriteString(to, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n")
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: from}, nil
		})
		f, err := provider.NewForwarder(provider.ForwarderConfig{Upstreams: upstreams(t, provider.UpstreamsConfig{}, "a"), Base: base})
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		holder := &slow{}
		reply, err := f.Do(ctx, provider.Forwarded{
			Endpoint: provider.ChatCompletions, Stream: true, Call: sluice.Call{Lane: "m"},
			Granted: func(p *sluice.Permit, _ provider.Destination) { p.SetHolder(holder) },
			Body: func(provider.Destination) (io.ReadCloser, int64, error) {
				return io.NopCloser(strings.NewReader("{}")), 2, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		leave()
		synctest.Wait() // the watch over the context is at it
		reply.Body.Close()
		if !holder.noted {
			t.Error("the body is closed before its permit is back")
		}
		time.Sleep(2 * time.Second)
	})
}
