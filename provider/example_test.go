package provider_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// An HTTP client that keeps to the limits. Give such a client to the SDK of a provider, and turn the SDK's own retries off.
func ExampleNewTransport() {
	server, err := sim.New(sim.Config{RPM: 60, Latency: -1}) // in place of a real provider
	if err != nil {
		log.Fatal(err)
	}
	scheduler, err := sluice.New(sluice.Config{Limits: sluice.Limits{RPM: 60}})
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Close()
	transport, err := provider.NewTransport(provider.Config{Scheduler: scheduler, Base: server.Transport()})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport}
	body := `{"model":"gpt-4o","messages":[{"role":"user","content":"hello"}]}`
	response, err := client.Post("http://sim/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	io.Copy(io.Discard, response.Body)
	response.Body.Close() // releases the permit
	lane := scheduler.Snapshot().Lanes[0]
	fmt.Println(response.Status, lane.Lane, lane.Granted)
	// Output: 200 OK gpt-4o 1
}
