package gateway_test

import (
	"fmt"
	"log"
	"net/http/httptest"
	"strings"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// A gateway in front of one upstream, which is a simulator here. A program serves it with http.Server.
func Example() {
	server, err := sim.New(sim.Config{Latency: -1})
	if err != nil {
		log.Fatal(err)
	}
	scheduler, err := sluice.New(sluice.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Close()
	simulated, _ := provider.Lookup("sim")
	upstreams, err := provider.NewUpstreams(provider.UpstreamsConfig{Upstreams: []provider.Upstream{
		{Name: "main", Provider: simulated, Scheduler: scheduler, Models: map[string]string{"gpt-4o-mini": "sim-small"}},
	}})
	if err != nil {
		log.Fatal(err)
	}
	handler, err := gateway.New(gateway.Config{Upstreams: upstreams, Base: server.Transport()})
	if err != nil {
		log.Fatal(err)
	}
	request := httptest.NewRequest("POST", "http://127.0.0.1:8787/v1/chat/completions",
		strings.NewReader(`{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hello"}]}`))
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, request)
	fmt.Println(response.Code)
	// Output: 200
}
