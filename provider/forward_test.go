package provider_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

func TestAClientsOwnKeyGoesToOneUpstreamInALaneOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		base := roundTrip(func(r *http.Request) (*http.Response, error) {
			r.Body.Close()
			asked = append(asked, r.URL.Host+" "+r.Header.Get("Authorization"))
			return nil, errors.New("connection reset")
		})
		u := upstreams(t, provider.UpstreamsConfig{Attempts: 2}, "a", "b")
		f, err := provider.NewForwarder(provider.ForwarderConfig{Upstreams: u, Base: base})
		if err != nil {
			t.Fatal(err)
		}
		call := provider.Forwarded{
			Endpoint: provider.ChatCompletions, Call: sluice.Call{Lane: "m"},
			Body: func(provider.Destination) (io.ReadCloser, int64, error) {
				return io.NopCloser(strings.NewReader("{}")), 2, nil
			},
		}
		_, _ = f.Do(t.Context(), call)
		if len(asked) != 2 || asked[0][:1] == asked[1][:1] {
			t.Errorf("a call without a key of its own asks %q", asked)
		}
		asked = nil
		call.Key = "key-of-a-client"
		_, _ = f.Do(t.Context(), call)
		if want := "a.test Bearer key-of-a-client"; len(asked) != 2 || !slices.Equal(asked, []string{want, want}) {
			t.Errorf("a call with a key of its own asks %q", asked)
		}
		for i := range 1100 { // whoever makes up keys gets no more lanes
			call.Key = fmt.Sprint("key-", i)
			_, _ = f.Do(t.Context(), call)
		}
		if n := len(u.All()[0].Scheduler.Snapshot().Lanes); n > 1003 {
			t.Errorf("%d lanes", n)
		}
	})
}

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

// forwarded is a call, by the client's own key if that is not "".
func forwarded(key string) provider.Forwarded {
	return provider.Forwarded{
		Endpoint: provider.ChatCompletions, Call: sluice.Call{Lane: "m"}, Key: key,
		Body: func(provider.Destination) (io.ReadCloser, int64, error) {
			return io.NopCloser(strings.NewReader("{}")), 2, nil
		},
	}
}

func TestKeysOfClientsAreNotKept(t *testing.T) {
	base := roundTrip(func(r *http.Request) (*http.Response, error) {
		r.Body.Close()
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(chatAnswer))}, nil
	})
	f, err := provider.NewForwarder(provider.ForwarderConfig{Upstreams: upstreams(t, provider.UpstreamsConfig{}, "a"), Base: base})
	if err != nil {
		t.Fatal(err)
	}
	const n, long = 50, 1 << 20
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range n {
		reply, err := f.Do(t.Context(), forwarded(fmt.Sprint(i)+strings.Repeat("k", long)))
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(f)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > n*long/5 {
		t.Errorf("%d bytes are kept of %d keys", grown, n)
	}
}
