package sim_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/sim"
)

// A provider that allows two requests a minute, called in process.
func ExampleServer_Transport() {
	server, err := sim.New(sim.Config{RPM: 2, Latency: -1, RefusalLatency: -1})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: server.Transport()}
	body := `{"model":"gpt-4o","messages":[{"role":"user","content":"hello"}]}`
	for range 3 {
		response, err := client.Post("http://sim/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			log.Fatal(err)
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		fmt.Println(response.StatusCode, "remaining", response.Header.Get("x-ratelimit-remaining-requests"))
	}
	fmt.Println("throttled", server.Stats().Throttled)
	// Output:
	// 200 remaining 1
	// 200 remaining 0
	// 429 remaining 0
	// throttled 1
}

// How fast can 1,000 calls be at 600 a minute, of which ten seconds' worth may
// come at once?
func ExampleConfig_Optimum() {
	config := sim.Config{RPM: 600, Burst: 10 * time.Second}
	fmt.Println(config.Optimum(make(sim.Workload, 1000)))
	// Output: 1m30.2s
}
