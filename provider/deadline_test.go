package provider_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// inParts is a body whose parts come one after the other, each after a time.
func inParts(ctx context.Context, each time.Duration, parts ...string) io.Reader {
	parts = slices.Clone(parts)
	return readerFunc(func(p []byte) (int, error) {
		if len(parts) == 0 {
			return 0, io.EOF
		}
		select {
		case <-time.After(each):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		n := copy(p, parts[0])
		if parts[0] = parts[0][n:]; parts[0] == "" {
			parts = parts[1:]
		}
		return n, nil
	})
}

func TestTheTimeoutIsOfASilentStreamAndOfOtherAnswersAsAWhole(t *testing.T) {
	events := strings.SplitAfter(chatStream, "\n\n")
	for name, c := range map[string]struct {
		timeout    time.Duration
		head, each time.Duration
		body       []string
		stream     bool // asked for
		late       time.Duration
	}{
		"a stream that lives":                {timeout: 7 * time.Second, head: 6 * time.Second, each: 6 * time.Second, body: events, stream: true},
		"a stream that nobody asked for":     {timeout: 7 * time.Second, each: 6 * time.Second, body: events},
		"a stream that lives, by default":    {head: 119 * time.Second, each: 119 * time.Second, body: events, stream: true},
		"a stream that falls silent":         {head: time.Second, each: 121 * time.Second, body: events, stream: true, late: 121 * time.Second},
		"a stream that does not begin":       {head: time.Hour, stream: true, late: 2 * time.Minute},
		"an answer that takes long":          {each: 9 * time.Minute, body: []string{chatAnswer}},
		"an answer that comes bit by bit":    {timeout: 7 * time.Second, each: time.Second, body: strings.SplitAfter(chatAnswer, ":"), late: 7 * time.Second},
		"an answer that comes too late":      {each: 11 * time.Minute, body: []string{chatAnswer}, late: 10 * time.Minute},
		"an answer to one who asks a stream": {timeout: 7 * time.Second, each: time.Second, body: strings.SplitAfter(chatAnswer, ":"), stream: true, late: 7 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			base := tripper(func(r *http.Request) (*http.Response, error) {
				select {
				case <-time.After(c.head):
				case <-r.Context().Done():
					return nil, r.Context().Err()
				}
				kind := "application/json"
				if strings.HasPrefix(strings.Join(c.body, ""), "data:") {
					kind = "text/event-stream"
				}
				return reply(200, inParts(r.Context(), c.each, c.body...), "content-type", kind)
			})
			start := time.Now()
			_, o := exchange(t, t.Context(), base, provider.ExchangeConfig{Timeout: c.timeout, Stream: c.stream})
			switch took := time.Since(start); {
			case c.late == 0 && o.Kind != sluice.OK, c.late > 0 && (o.Kind != sluice.Timeout || took != c.late):
				t.Errorf("%s: %v after %v: %v", name, o.Kind, took, o.Err)
			}
		})
	}
}
