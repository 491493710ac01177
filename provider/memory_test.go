package provider_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"net/http"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/provider"
)

// peak returns how many bytes more than before are live at most while fn runs, at the collections of garbage meanwhile.
func peak(fn func()) int64 {
	defer debug.SetGCPercent(debug.SetGCPercent(1)) // one after the other
	runtime.GC()
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	inUse := func() int64 {
		metrics.Read(sample)
		return int64(sample[0].Value.Uint64())
	}
	before, most, stop, stopped := inUse(), int64(0), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			most = max(most, inUse()-before)
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Microsecond):
			}
		}
	}()
	fn()
	close(stop)
	<-stopped
	return most
}

// repeated is a text again and again, up to a length.
func repeated(text string, n int64) io.Reader {
	return io.LimitReader(&cycle{text: text}, n)
}

type cycle struct {
	text string
	at   int
}

func (a *cycle) Read(p []byte) (n int, err error) {
	for n < len(p) {
		k := copy(p[n:], a.text[a.at:])
		n, a.at = n+k, (a.at+k)%len(a.text)
	}
	return n, nil
}

func TestAHostileResponseTakesAtMostTwiceTheMaximum(t *testing.T) {
	suite.FullOnly(t)
	const long int64 = 1 << 40
	const most int64 = 64 << 20 // the default
	const chat = provider.ChatCompletions
	stream := []string{"Content-Type", "text/event-stream"}
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = io.Copy(z, repeated("x", 1<<28))
	z.Close()
	delta := func(input string) string { // 999 bytes around 900
		return `data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"` + input + "\"}}\n\n"
	}
	type response struct {
		endpoint provider.Endpoint
		status   int
		header   []string
		body     io.Reader
	}
	responses := func() map[string]response {
		return map[string]response{
			"endless":              {chat, 200, nil, repeated("x", long)},
			"as long as may be":    {chat, 200, nil, io.MultiReader(strings.NewReader(`{"choices":[{"message":{"content":"`), repeated("x", most-100), strings.NewReader(`"}}]}`))},
			"white space":          {chat, 200, nil, repeated(" ", long)},
			"nested":               {chat, 200, nil, repeated(`{"choices":[`, long)},
			"a refusal":            {chat, 400, nil, repeated("x", long)},
			"packed":               {chat, 200, []string{"Content-Encoding", "gzip"}, bytes.NewReader(bomb.Bytes())},
			"a line of a stream":   {chat, 200, stream, io.MultiReader(strings.NewReader("data: "), repeated("x", long))},
			"an event of a stream": {chat, 200, stream, repeated("data: x\n", long)},
			"a long event":         {chat, 200, stream, io.MultiReader(strings.NewReader(`data: {"choices":[{"delta":{"content":"`), repeated("x", most/4-100), strings.NewReader("\"}}]}\n\n"))},
			"comments":             {chat, 200, stream, repeated(": x\n\n", 1<<27)},
			"a stream":             {chat, 200, stream, repeated(`data: {"choices":[{"delta":{"content":"`+strings.Repeat("x", 1000)+`"}}]}`+"\n\n", long)},
			"a whole stream":       {chat, 200, stream, io.MultiReader(repeated(`data: {"choices":[{"delta":{"content":"`+strings.Repeat("x", 957)+`"}}]}`+"\n\n", most-1000*10), strings.NewReader(`data: {"choices":[{"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n"))},
			"a stream of tools":    {chat, 200, stream, repeated(`data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"`+strings.Repeat("x", 1000)+`"}}]}}]}`+"\n\n", long)},
			"the input of a tool":  {provider.Messages, 200, stream, io.MultiReader(strings.NewReader("data: {\"type\":\"message_start\",\"message\":{}}\n\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"input\":{}}}\n\n"+delta(`{\"a\":\"`)), repeated(delta(strings.Repeat("x", 900)), most-1000*100), strings.NewReader(delta(`\"}`)+"data: {\"type\":\"message_stop\"}\n\n"))},
			"a stream that is cut": {chat, 200, stream, repeated(`data: {"choices":[{"delta":{"content":"`+strings.Repeat("x", 957)+`"}}]}`+"\n\n", most-1000*10)},
			"parts of Gemini":      {provider.StreamGenerateContent, 200, stream, io.MultiReader(repeated(`data: {"candidates":[{"content":{"parts":[{"text":"`+strings.Repeat("x", 940)+`"}]}}]}`+"\n\n", most-1000*10), strings.NewReader("\n\n"+`data: {"candidates":[{"finishReason":"STOP"}]}`+"\n\n"))},
		}
	}
	for name := range responses() {
		t.Run(name, func(t *testing.T) {
			p, _ := provider.Lookup("generic")
			least := int64(math.MaxInt64) // of some measurements: what is allocated while a collection runs counts as live
			for range 5 {
				c := responses()[name]
				req, err := p.NewRequest(t.Context(), provider.Target{BaseURL: "http://host/v1", Endpoint: c.endpoint, Model: "m"}, []byte(`{"model":"m"}`))
				if err != nil {
					t.Fatal(err)
				}
				var o sluice.Outcome
				got := peak(func() {
					base := tripper(func(*http.Request) (*http.Response, error) { return reply(c.status, c.body, c.header...) })
					_, o = provider.Exchange(t.Context(), base, nil, req, provider.ExchangeConfig{Provider: p, Endpoint: c.endpoint, MaxBytes: most})
				})
				t.Logf("%.2f of the maximum: %v", float64(got)/float64(most), o.Kind)
				const meanwhile = 2 << 20 // the same, where each measurement has it
				if least = min(least, got); least <= 2*most+meanwhile {
					return
				}
			}
			t.Errorf("%d bytes are in use, more than twice the maximum of %d", least, most)
		})
	}
}
