package sim_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/sim"
)

func streaming(body string) string {
	return strings.Replace(body, "{", `{"stream":true,`, 1)
}

func TestCancelledCallIsAbandonedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{Concurrency: 1, Latency: 10 * time.Second})
		late := errors.New("too late")
		ctx2, cancel := context.WithTimeoutCause(ctx, time.Second, late)
		defer cancel()
		r := send(ctx2, s, chatPath, chatBody("a", 1, 1))
		if !errors.Is(r.err, late) {
			t.Errorf("err = %v", r.err)
		}
		equal(t, "took", r.took, time.Second)
		stats := s.Stats()
		equal(t, "abandoned", stats.Abandoned, 1)
		equal(t, "paid", len(stats.Paid), 0)
		equal(t, "status after", send(ctx, s, chatPath, chatBody("a", 1, 1)).status, 200)
	})
}

func TestAbandonedCallIsChargedWhatItProduced(t *testing.T) {
	for _, body := range []string{chatBody("a", 10, 500), streaming(chatBody("a", 10, 500))} {
		bubble(t, func(t *testing.T, ctx context.Context) {
			s := serve(t, sim.Config{TPM: 6000, Charge: limits.ChargeActual, OutputTokens: 64, Latency: time.Second, PerToken: 10 * time.Millisecond})
			ctx2, cancel := context.WithTimeout(ctx, 1305*time.Millisecond)
			defer cancel()
			if r := send(ctx2, s, chatPath, body); !errors.Is(r.err, context.DeadlineExceeded) {
				t.Errorf("err = %v", r.err)
			}
			equal(t, "output", s.Stats().OutputTokens, 30)
			r := send(ctx, s, chatPath, chatBody("b", 1, 1)) // 6000 - 30 - 1, and a stream had refill meanwhile
			remaining := map[bool]string{false: "5969", true: "5998"}[strings.Contains(body, "stream")]
			equal(t, "remaining", r.header.Get("x-ratelimit-remaining-tokens"), remaining)
		})
	}
}

func TestStreamComesByAndBy(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{OutputTokens: 30, PerToken: time.Second})
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, baseURL+chatPath, strings.NewReader(streaming(chatBody("a", 1, 0))))
		begun := time.Now()
		response, err := s.Transport().RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "header after", time.Since(begun), 200*time.Millisecond)
		buffer := make([]byte, 1<<16)
		response.Body.Read(buffer) // the role, at once
		response.Body.Read(buffer) // the name
		equal(t, "text after", time.Since(begun), 1200*time.Millisecond)
		equal(t, "in flight", s.Stats().InFlight, 1)
		response.Body.Close()
		equal(t, "in flight after Close", s.Stats().InFlight, 0)
		equal(t, "abandoned", s.Stats().Abandoned, 1)
		if _, err := response.Body.Read(buffer); err == nil {
			t.Error("a closed body can be read")
		}
	})
}

func TestStreamHoldsItsSlotUntilTheLastByte(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{OutputTokens: 30, PerToken: time.Second, Concurrency: 1})
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, baseURL+chatPath, strings.NewReader(streaming(chatBody("a", 1, 0))))
		response, err := s.Transport().RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(29 * time.Second)
		equal(t, "status during", send(ctx, s, chatPath, chatBody("b", 1, 1)).status, 429)
		time.Sleep(2 * time.Second)
		// Nothing was read, but everything was handed over.
		equal(t, "status after", send(ctx, s, chatPath, chatBody("b", 1, 1)).status, 200)
		b, err := io.ReadAll(response.Body)
		if err != nil || !strings.HasSuffix(string(b), "data: [DONE]\n\n") {
			t.Errorf("the stream ends in %v", err)
		}
		response.Body.Close()
	})
}

func TestStreamThatIsRefusedIsAnOrdinaryAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, quick(sim.Config{RPM: 1}))
		for _, want := range []int{200, 429} {
			r := send(ctx, s, chatPath, streaming(chatBody("a", 1, 1)))
			equal(t, "status", r.status, want)
			equal(t, "error", r.err, nil)
			if want == 429 {
				equal(t, "type", r.header.Get("Content-Type"), "application/json")
			}
		}
	})
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{Faults: sim.Faults{Hang: 1}})
		ctx2, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if r := send(ctx2, s, chatPath, streaming(chatBody("a", 1, 1))); !errors.Is(r.err, context.DeadlineExceeded) {
			t.Errorf("a stream that hangs: %v", r.err)
		}
		synctest.Wait()
		equal(t, "in flight", s.Stats().InFlight, 0)
	})
}

func TestClientTimeoutEndsACall(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := serve(t, sim.Config{Latency: time.Hour})
		client := &http.Client{Transport: s.Transport(), Timeout: time.Minute}
		_, err := client.Post(baseURL+chatPath, "application/json", strings.NewReader(chatBody("a", 1, 1)))
		if timeout, ok := errors.AsType[*url.Error](err); !ok || !timeout.Timeout() {
			t.Errorf("err = %v", err)
		}
	})
}
