package provider_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// Every call through a faulty, limited provider comes to a good end, whole, in every dialect, streamed or not.
func TestTransportBringsEveryCallThrough(t *testing.T) {
	bodies := map[string]string{
		"/v1/chat/completions": `{"model":"m","messages":[{"role":"user","content":"call %d"}],"max_tokens":20%s}`,
		"/v1/responses":        `{"model":"m","input":"call %d","max_output_tokens":20%s}`,
		"/v1/messages":         `{"model":"m","messages":[{"role":"user","content":"call %d"}],"max_tokens":20%s}`,
		"/v2/chat":             `{"model":"m","messages":[{"role":"user","content":"call %d"}],"max_tokens":20%s}`,
	}
	for path, form := range bodies {
		for _, stream := range []string{"", `,"stream":true`} {
			t.Run(path+stream, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server, err := sim.New(sim.Config{Seed: 1, RPM: 600, Burst: time.Second, Concurrency: 20,
						Faults: sim.Faults{ServerError: 0.05, Overloaded: 0.05, Reset: 0.05, Hang: 0.02}})
					if err != nil {
						t.Fatal(err)
					}
					tr, w := transport(t, server.Transport(), func(_ *provider.Config, c *sluice.Config) { c.Attempts, c.MaxThrottles = 0, 0 })
					var wg sync.WaitGroup
					for i := range 60 {
						wg.Go(func() {
							body := fmt.Sprintf(form, i, stream)
							req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x"+path, strings.NewReader(body))
							req.Header.Set("Anthropic-Version", "2023-06-01")
							resp, err := tr.RoundTrip(req)
							if err != nil {
								t.Error(err)
								return
							}
							defer resp.Body.Close()
							b, err := io.ReadAll(resp.Body)
							if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(b), sim.RequestHash([]byte(body))) {
								t.Errorf("%v %d %.200s", err, resp.StatusCode, b)
							}
						})
					}
					wg.Wait()
					synctest.Wait()
					good := 0
					for _, o := range w.ended(t, len(w.ends)) {
						if o.Kind != sluice.OK {
							continue
						}
						good++
						// A chat stream states its usage only when it is asked to.
						if !o.HasUsage && (stream == "" || path != "/v1/chat/completions") {
							t.Errorf("usage is not known: %+v", o)
						}
					}
					if good != 60 {
						t.Errorf("%d good ends", good)
					}
				})
			})
		}
	}
}
